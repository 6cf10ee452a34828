/** The steps of the pipeline, and readings of its numbers. */

import { formatNumber } from "../../numbers";
import type { DoorScheme, TextWalkthrough } from "../../types";
import type { Tensor } from "../../wire";

export const STEPS = [
  { id: "tokens", title: "Tokens" },
  { id: "ids", title: "Ids" },
  { id: "rows", title: "Rows" },
  { id: "positions", title: "Positions" },
  { id: "sum", title: "Sum" },
  { id: "rotation", title: "Queries, keys" },
  { id: "bias", title: "Bias" },
  { id: "score", title: "Scores" },
] as const;

export type StepId = (typeof STEPS)[number]["id"];

/** The text that is followed: the query at one position, a key at another. */
export interface StepProps {
  walk: TextWalkthrough;
  at: number;
  other: number;
}

export function doorName(walk: TextWalkthrough, door: DoorScheme["door"]): string | null {
  return walk.doors.find((each) => each.door === door)?.name ?? null;
}

export function row({ values, shape }: Tensor, number: number): ArrayLike<number> {
  const columns = shape[1] ?? 0;
  return values.subarray(number * columns, (number + 1) * columns);
}

export function cell({ values, shape }: Tensor, i: number, j: number): number {
  return values[i * (shape[1] ?? 0) + j] ?? Number.NaN;
}

/** Return the first numbers of a vector, and dots where there are more. */
export function vectorWords(values: ArrayLike<number>, most = 4): string {
  const first = Array.from(values).slice(0, most);
  const rest = values.length - first.length;
  return `(${first.map((value) => formatNumber(value)).join(", ")}${rest > 0 ? ", …" : ""})`;
}
