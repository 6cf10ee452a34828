/** What the API answers of a text on its way, and small readings of it. */

import { formatNumber } from "../../numbers";
import { face, visibleToken } from "../../escape";
import type { Tensor } from "../../wire";

export interface Read {
  count: number;
  ids: Tensor;
  words: string[];
  texts: (string | null)[];
  kinds: string[];
}

export interface Door {
  door: "input" | "query_key" | "score";
  name: string;
  said: string;
}

export interface Walk extends Omit<Read, "count"> {
  tensor: string | null;
  factor: number;
  title: string;
  doors: Door[];
  notes: string[];
  dim: number;
  num_heads: number;
  head_dim: number;
  rows: Tensor;
  position_rows: Tensor | null;
  vectors: Tensor;
  angles: Tensor | null;
  head: number;
  scale: number;
  causal: boolean;
  q: Tensor;
  mapped_q: Tensor;
  mapped_k: Tensor;
  products: Tensor;
  mapped_products: Tensor;
  bias: Tensor | null;
  scores: Tensor;
  seed: number;
  /** What builds the scheme. */
  python: string;
  pairs: { first: Tensor; second: Tensor; frequencies: Tensor } | null;
}

export type StepId = "tokens" | "ids" | "rows" | "positions" | "sum" | "rotation" | "bias" | "score";

export const STEPS: { id: StepId; title: string }[] = [
  { id: "tokens", title: "Tokens" },
  { id: "ids", title: "Ids" },
  { id: "rows", title: "Rows" },
  { id: "positions", title: "Positions" },
  { id: "sum", title: "Sum" },
  { id: "rotation", title: "Queries, keys" },
  { id: "bias", title: "Bias" },
  { id: "score", title: "Scores" },
];

export function faces({ words, texts }: Pick<Read, "words" | "texts">): string[] {
  return words.map((word, n) => visibleToken(face(word, texts[n] ?? null)));
}

export function doorName(walk: Walk, door: Door["door"]): string | null {
  return walk.doors.find((each) => each.door === door)?.name ?? null;
}

export function row({ values, shape }: Tensor, number: number): ArrayLike<number> {
  const columns = shape[1] ?? 0;
  return values.subarray(number * columns, (number + 1) * columns);
}

export function cell({ values, shape }: Tensor, i: number, j: number): number {
  return values[i * (shape[1] ?? 0) + j] ?? Number.NaN;
}

/** Write the first numbers of a vector, and how many there are. */
export function vectorWords(values: ArrayLike<number>, most = 4): string {
  const first = Array.from(values).slice(0, most);
  const rest = values.length - first.length;
  return `(${first.map((value) => formatNumber(value, 3)).join(", ")}${rest > 0 ? ", …" : ""})`;
}
