/** The points of the tokens on the plane, and how many neighbors the plane keeps. */

import { useEffect, useState } from "preact/hooks";
import { visible } from "../../escape";
import { useView } from "../../hooks";
import { writeLink } from "../../link";
import { fixed, whole } from "../../numbers";
import type { Box } from "../../parts/raster";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/field";
import type { MapPoints, NamedTokens, NeighborsKept } from "../../types";
import { type Names, percent } from "./labels";
import type { Numbers, Tensor } from "../../wire";

export type Method = MapPoints["method"];

export type ComputedMap = MapPoints & { kept: NeighborsKept; ids: Tensor; coordinates: Tensor };

export function isComputed(map: MapPoints | null): map is ComputedMap {
  return map !== null && map.kept !== null;
}

export const METHODS: Record<Method, string> = { pca: "PCA", tsne: "t-SNE", umap: "UMAP" };

export class Plane {
  readonly x: Float32Array;
  readonly y: Float32Array;
  readonly ids: Numbers;
  readonly #points: Int32Array;

  constructor(readonly of: ComputedMap) {
    const { values } = of.coordinates;
    this.ids = of.ids.values;
    this.x = Float32Array.from(this.ids, (_, n) => values[2 * n]!);
    this.y = Float32Array.from(this.ids, (_, n) => values[2 * n + 1]!);
    this.#points = new Int32Array(of.rows).fill(-1);
    this.ids.forEach((id, n) => (this.#points[id] = n));
  }

  /** Return the point of an id, or null where it is not on the map. */
  point(id: number): number | null {
    const point = this.#points[id] ?? -1;
    return point < 0 ? null : point;
  }

  /** Return how many of some points are among the nearest on the plane, ties included. */
  keeps(point: number, neighbors: number[]): number {
    const away = (n: number) => (this.x[n]! - this.x[point]!) ** 2 + (this.y[n]! - this.y[point]!) ** 2;
    const order = Float64Array.from(this.ids, (_, n) => (n === point ? Infinity : away(n))).sort();
    const border = order[neighbors.length - 1] ?? -1;
    return neighbors.filter((n) => away(n) <= border).length;
  }
}

/** Return how far a map can be trusted, as it is printed on the map itself. */
export function trust({ kept, explained, shown, rows, not_finite, named }: ComputedMap): string[] {
  const { share, k, queries, chance } = kept;
  const among = named || shown < rows - not_finite ? "among the shown" : "of the full space";
  const lines = [
    `keeps ${percent(share)} of the ${k} nearest tokens ${among}`,
    `of ${whole(queries)} tokens${queries < shown ? " sampled" : ""}; chance would keep ${percent(chance)}`,
  ];
  if (explained)
    lines.push(`across ${fixed(100 * explained[0], 1)} % of the variance, up ${fixed(100 * explained[1], 1)} %`);
  return lines;
}

export function readBox(text: string): Box | null {
  const [left, right, bottom, top] = text.split(",").map(Number);
  if (![left, right, bottom, top].every(Number.isFinite) || top === undefined) return null;
  return { left: left!, right: right!, bottom: bottom!, top };
}

export function writeBox({ left, right, bottom, top }: Box): string {
  // Rounded outward, so that what was inside stays so.
  const down = (value: number) => Math.floor(value * 1e4) / 1e4;
  const up = (value: number) => Math.ceil(value * 1e4) / 1e4;
  return [down(left), up(right), down(bottom), up(top)].join(",");
}

export function cardOf(id: number): string {
  return writeLink("tokens", { token: `#${id}` }, {});
}

export function pointColumns({ ids, x, y }: Plane, names: Names): Column<number>[] {
  const id = (point: number) => ids[point]!;
  return [
    {
      title: "token",
      value: (point) => names.shown(id(point)),
      cell: (point) => (
        <TokenLabel word={names.word(id(point))} text={names.text(id(point))} href={cardOf(id(point))} />
      ),
    },
    { title: "id", numeric: true, value: id, cell: id },
    { title: "type", value: (point) => names.kind(id(point)) },
    { title: "script", value: (point) => names.script(id(point)) },
    { title: "norm", numeric: true, value: (point) => names.norm(id(point)) },
    { title: "x", decimals: 4, value: (point) => x[point] },
    { title: "y", decimals: 4, value: (point) => y[point] },
  ];
}

export function NamedField() {
  const { about, settings, change } = useView<{ tokens: string }>();
  const { method = "pca", example: given = "" } = about.begin["map"] ?? {};
  const { tokens: value } = settings;
  const example = String(given);
  const choose = (tokens: string) =>
    change({ tokens, token: "", box: "", only: "", find: "", method: tokens ? "pca" : method });
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return (
    <form
      class="controls named"
      onSubmit={(event) => {
        event.preventDefault();
        choose(typed.trim());
      }}
    >
      <div class="field wide">
        <label for="named-tokens">Only these tokens: commas between tokens, semicolons between groups</label>
        <input
          id="named-tokens"
          type="text"
          class="main"
          spellcheck={false}
          autocomplete="off"
          maxLength={20000}
          placeholder={about.examples.join(", ")}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </div>
      <button type="submit">Draw these</button>
      {example !== "" && example !== value && (
        <button type="button" onClick={() => choose(example)}>
          Example:{" "}
          {example
            .split(";")
            .map((part) => part.split(":")[0]!.trim())
            .join(", ")}
        </button>
      )}
      {value !== "" && (
        <button type="button" onClick={() => choose("")}>
          All tokens
        </button>
      )}
    </form>
  );
}

/** Shows how many of the tokens have their nearest neighbor of the set in their own group. */
export function NamedFacts({ named }: { named: NamedTokens }) {
  const { missing, group_names } = named;
  const { stay, compared, within, between } = named.neighbors;
  const range = ([low, high]: readonly [number, number]) => `${fixed(low, 2)} to ${fixed(high, 2)}`;
  const nearest = Array.from(named.neighbors.cosines.values);
  return (
    <>
      {group_names.length > 1 && compared > 0 && (
        <p class="answer">
          <b>
            {stay} of {compared}
          </b>{" "}
          tokens have their nearest neighbor of this set, by cosine, in their own group.
        </p>
      )}
      <p>
        Cosine to the nearest: {range([Math.min(...nearest), Math.max(...nearest)])}.
        {within && group_names.length > 1 && ` Of all pairs within a group: ${range(within)}.`}
        {between && ` Between groups: ${range(between)}.`}
      </p>
      {Object.keys(missing).length > 0 && (
        <p>
          Not drawn, for these are not single tokens here:{" "}
          {Object.entries(missing).map(([text, reason], n) => (
            <span key={n}>
              {n > 0 && "; "}
              <b>{visible(text)}</b> ({visible(reason)})
            </span>
          ))}
        </p>
      )}
    </>
  );
}
