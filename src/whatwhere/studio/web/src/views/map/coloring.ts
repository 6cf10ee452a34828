/** What the points of the map are colored and filtered by: groups, of which the largest have a color each, or amounts. */

import { whole } from "../../numbers";
import { BEHIND } from "../../parts/raster";
import type { NamedTokens, TokenFrequencies } from "../../types";
import type { Numbers } from "../../wire";
import type { Names } from "./labels";

export interface Coloring {
  group: Uint8Array;
  /** Their names, by color; "" is not a group. */
  groups?: string[];
  amount?: [number, number];
  note: string;
  /** What can be shown alone, each with its number of tokens. */
  choices: [string, number][];
  /** Whether a point belongs to what is shown alone. */
  keeps(point: number): boolean;
}

/** The colors of the page, without the gray of all other groups. */
const COLORED = 7;
const LEVELS = 254;
/** Shares of the tokens with the smallest and the largest amounts. */
const PARTS: Record<string, [number, number]> = {
  "lowest 1 %": [0, 0.01],
  "lowest 10 %": [0, 0.1],
  "highest 10 %": [0.9, 1],
  "highest 1 %": [0.99, 1],
};

function byGroup(points: number, of: (point: number) => number, names: string[], what: string, only: string): Coloring {
  const counts = new Uint32Array(names.length);
  for (let n = 0; n < points; n++) counts[of(n)]!++;
  const order = names.map((_, n) => n).filter((n) => counts[n]! > 0);
  order.sort((a, b) => counts[b]! - counts[a]!);
  const alone = names.indexOf(only);
  const largestOnes = order.slice(0, COLORED);
  // What is shown alone has a color, however small it is.
  const small = alone >= 0 && counts[alone]! > 0 && !largestOnes.includes(alone);
  const colored = small ? [...largestOnes.slice(0, -1), alone] : largestOnes;
  const others = order.filter((n) => !colored.includes(n));
  // Named groups have colors; types and scripts spend the gray on the largest.
  const none = what === "group" ? [""] : [];
  const gray = others.length > 1 ? [`other ${what}s`] : others.length ? [names[others[0]!]!] : none;
  const groups = [...gray, ...colored.map((n) => names[n]!)];
  const colors = new Uint8Array(names.length); // what has no color of its own is 0, the gray
  colored.forEach((n, k) => (colors[n] = k + gray.length));
  const chosen = groups.indexOf(only);
  const group = Uint8Array.from({ length: points }, (_, n) => colors[of(n)]!);
  const largest = order.slice(0, 4).map((n) => `${names[n]} ${whole(counts[n]!)}`);
  return {
    group,
    groups,
    note: `Colored by ${what}: ${largest.join(", ")}${order.length > 4 ? ", and others" : ""}.`,
    choices: order.map((n) => [names[n]!, counts[n]!]),
    keeps: (n) => (alone >= 0 ? of(n) === alone : chosen < 0 || group[n] === chosen),
  };
}

/** Color by an amount; the range is from the 0.5 % to the 99.5 % quantile, so that outliers do not dominate it. */
function byAmount(values: Float64Array, note: string, only: string, log = false): Coloring {
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
  const bounds = ([from, to]: [number, number]) => [
    sorted[Math.round(from * (sorted.length - 1))]!,
    sorted[Math.round(to * (sorted.length - 1))]!,
  ];
  const [least, most] = bounds(PARTS[only] ?? [0, 1]);
  const choices = Object.entries(PARTS).map(([name, part]): [string, number] => {
    const [from, to] = bounds(part);
    return [name, sorted.filter((value) => value >= from! && value <= to!).length];
  });
  return {
    group,
    amount: [low, high],
    note,
    choices,
    keeps: (n) => !(only in PARTS) || (values[n]! >= least! && values[n]! <= most!),
  };
}

export function coloring(
  by: string,
  ids: Numbers,
  names: Names,
  only: string,
  frequencies: TokenFrequencies | null,
  named: NamedTokens | null,
): Coloring {
  const { labels } = names;
  const of = (numbers: Numbers) => (point: number) => numbers[ids[point]!]!;
  const amounts = (of: (id: number) => number) => Float64Array.from(ids, of);
  if (named && named.group_names.length > 1)
    return byGroup(ids.length, (point) => named.groups.values[point]!, [...named.group_names], "group", only);
  if (by === "script") return byGroup(ids.length, of(labels.scripts.values), labels.script_names, "script", only);
  if (by === "norm") return byAmount(amounts(names.norm), "Colored by the norm of the row.", only);
  if (by !== "frequency") return byGroup(ids.length, of(labels.kinds.values), labels.kind_names, "type", only);
  const counts = frequencies?.counts?.values;
  if (counts) {
    const part = frequencies.whole ? "" : " the beginning of";
    const note = `Colored by frequency in${part} ${frequencies.corpus} (${whole(frequencies.total)}), logarithmic.`;
    const counted = amounts((id) => counts[id]!);
    return byAmount(counted, note, only, true);
  }
  const note =
    "No text was given to count tokens in (whatwhere studio PATH --corpus TEXT), " +
    "so this is colored by id, a proxy for frequency: many vocabularies list frequent tokens first.";
  return byAmount(Float64Array.from(ids), note, only);
}

/** Return the points by importance for labels: words first, by frequency where it is counted, else by id. */
export function byImportance(ids: Numbers, names: Names, frequencies: TokenFrequencies | null): number[] {
  const counts = frequencies?.counts?.values;
  const weight = Float64Array.from(ids, (id) => {
    const word = names.kind(id).startsWith("word") && names.plain(id).trim().length > 2;
    return (word ? 0 : 1e12) + (counts ? -counts[id]! : id);
  });
  return Array.from(ids, (_, n) => n).sort((a, b) => weight[a]! - weight[b]!);
}
