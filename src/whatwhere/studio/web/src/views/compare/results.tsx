/** What a comparison measured, as studio/api/measurements.py returns it, and how a scheme looks in every figure. */

import { Table } from "../../parts/table";
import type { Tensor } from "../../wire";

export interface Results {
  task: { name: string; unit: string; trained: number[]; trained_text: string; measure: string; scored: string; percent: boolean; higher: boolean; groups: string[]; shift_length: number };
  schemes: string[];
  seeds: number[];
  lengths: Tensor;
  /** How many of the lengths were trained. */
  trained: number;
  in_length: Tensor;
  scores: Record<string, Tensor>;
  each: Tensor;
  baselines: { name: string; description: string; drawn: boolean; values: Tensor }[];
  shifts: Tensor;
  shift: { score: Tensor; largest_logit_change: Tensor };
  costs: { parameters: number; positions: number; milliseconds: number }[];
  story: TextTable | null;
  lines: Line[];
  fingerprints: Fingerprint[];
  curves: Curves[];
  verdicts: { claim: string; tutorial: string; measured: string; verdict: string; reason: string; precondition: string }[];
  /** What the figures show. */
  sentences: Record<"answer" | "question" | "scores" | "groups" | "shift" | "table" | "doors" | "distance" | "verdicts" | "record" | "repeat", string>;
  reproduction: { command: string | null; settings: string[][]; runs: TextTable };
}

/** A table of cells that are text. */
export interface TextTable {
  caption: string;
  head: string[];
  rows: string[][];
}

export interface Line {
  scheme: string;
  along: Tensor;
  r: number;
}

export interface Fingerprint {
  scheme: string;
  /** What a row and a column are, and what a number is. */
  rows: string;
  columns: string;
  description: string;
  values: Tensor;
}

/** Curves of one scheme over distance. */
export interface Curves {
  scheme: string;
  label: string;
  names: string[];
  distances: Tensor;
  values: Tensor;
}

const DASHES = [undefined, [8, 3], [2, 3], [8, 3, 2, 3], [12, 4], [4, 4], [1, 2]];

/** Give the color and strokes of a scheme, or of a head, the same in all figures. */
export function look(scheme: number): { color: number; dash?: number[] } {
  const dash = DASHES[scheme % DASHES.length];
  return { color: 1 + (scheme % 7), ...(dash ? { dash } : {}) };
}

/** A table of cells that are words already. */
export function Words({ caption, head, rows }: { caption: string; head: string[]; rows: string[][] }) {
  return <Table caption={caption} rows={rows} columns={head.map((title, n) => ({ title, value: (row: string[]) => row[n]! }))} />;
}
