/** The points of the tokens on the plane, and how many neighbors the plane keeps. */

import { writeLink } from "../../link";
import { fixed, whole } from "../../numbers";
import { type Box, Grid } from "../../parts/raster";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import type { MapPoints, NeighborsKept } from "../../types";
import type { Numbers, Tensor } from "../../wire";
import { type Names, percent } from "./labels";

export type Method = MapPoints["method"];

/** A map that is computed. */
export type ComputedMap = MapPoints & { kept: NeighborsKept; ids: Tensor; coordinates: Tensor };

export function isComputed(map: MapPoints | null): map is ComputedMap {
  return map !== null && map.kept !== null;
}

export const METHODS: Record<Method, string> = { pca: "PCA", tsne: "t-SNE", umap: "UMAP" };

/** The two coordinates of each point, and the point of each id. */
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

  inside(box: Box | null): number[] {
    return box ? new Grid({ x: this.x, y: this.y, group: null }).inside(box) : [];
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
    `${whole(queries)} tokens sampled; chance would keep ${percent(chance)}`,
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

/** Return the address of a token's card. */
export function cardOf(id: number): string {
  return writeLink("tokens", { token: `#${id}` }, {});
}

/** Return the columns of a table of points. */
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
