/** What the points of the map are colored by: groups, of which the largest have a color each, or amounts. */

import { whole } from "../../numbers";
import { BEHIND } from "../../parts/raster";
import type { TokenFrequencies } from "../../types";
import type { Numbers } from "../../wire";
import type { Names } from "./labels";

export interface Coloring {
  group: Uint8Array;
  groups?: string[];
  amount?: [number, number];
  /** How to read the colors. */
  note: string;
}

/** The colors of the page, without the gray of all other groups. */
const COLORED = 7;
const LEVELS = 254;

export function byGroup(ids: Numbers, numbers: Numbers, names: string[], what: string, only: string): Coloring {
  const counts = new Uint32Array(names.length);
  for (const id of ids) counts[numbers[id]!]!++;
  const order = names.map((_, n) => n).filter((n) => counts[n]! > 0);
  order.sort((a, b) => counts[b]! - counts[a]!);
  const colored = order.slice(0, COLORED);
  const others = order.slice(COLORED);
  const gray = others.length > 1 ? [`other ${what}s`] : others.map((n) => names[n]!);
  const groups = [...gray, ...colored.map((n) => names[n]!)];
  const colors = new Uint8Array(names.length); // what has no color of its own is 0, the gray
  colored.forEach((n, k) => (colors[n] = k + gray.length));
  const chosen = groups.indexOf(only);
  const group = new Uint8Array(ids.length);
  ids.forEach((id, n) => {
    const own = colors[numbers[id]!]!;
    group[n] = chosen >= 0 && own !== chosen ? BEHIND : own;
  });
  const largest = order.slice(0, 4).map((n) => `${names[n]} ${whole(counts[n]!)}`);
  return { group, groups, note: `Colored by ${what}: ${largest.join(", ")}${order.length > 4 ? ", and others" : ""}.` };
}

/** Color by an amount; the range is from the 0.5 % to the 99.5 % quantile, so that outliers do not dominate it. */
export function byAmount(values: Float64Array, note: string, log = false): Coloring {
  const sorted = values.filter(Number.isFinite).sort();
  const low = sorted[Math.floor(0.005 * (sorted.length - 1))] ?? 0;
  const high = sorted[Math.ceil(0.995 * (sorted.length - 1))] ?? 1;
  const scaled = (value: number) => (log ? Math.log1p(value) : value);
  const size = scaled(high) - scaled(low) || 1;
  const group = new Uint8Array(values.length);
  values.forEach((value, n) => {
    const share = (scaled(value) - scaled(low)) / size;
    group[n] = Number.isFinite(share) ? Math.round(LEVELS * Math.min(1, Math.max(0, share))) : BEHIND;
  });
  return { group, amount: [low, high], note };
}

export function coloring(
  by: string,
  ids: Numbers,
  names: Names,
  only: string,
  frequencies: TokenFrequencies | null,
): Coloring {
  const { labels } = names;
  if (by === "script") return byGroup(ids, labels.scripts.values, labels.script_names, "script", only);
  if (by === "norm")
    return byAmount(
      Float64Array.from(ids, (id) => names.norm(id)),
      "Colored by the norm of the row.",
    );
  if (by !== "frequency") return byGroup(ids, labels.kinds.values, labels.kind_names, "type", only);
  const counts = frequencies?.counts?.values;
  if (counts) {
    const part = frequencies.whole ? "" : " the beginning of";
    const note = `Colored by frequency in${part} ${frequencies.corpus} (${whole(frequencies.total)}), logarithmic.`;
    return byAmount(
      Float64Array.from(ids, (id) => counts[id]!),
      note,
      true,
    );
  }
  const note =
    "No text was given to count tokens in (whatwhere studio PATH --corpus TEXT), " +
    "so this is colored by id, a proxy for frequency: many vocabularies list frequent tokens first.";
  return byAmount(Float64Array.from(ids), note);
}
