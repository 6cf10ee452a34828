/** The lists of rows that are not well: what each says, and the evidence in its columns. */

import { fixed, told, whole } from "../../numbers";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import { face, readable } from "../../signs";
import type { Tensor } from "../../wire";

export interface Rows {
  count: number;
  ids: Tensor;
  norms: Tensor;
  words: string[];
  texts: (string | null)[];
  kinds: string[];
}

export interface Lists {
  never: Rows & { cosines: Tensor; likeness: Tensor; lost: Tensor; also: number | null };
  unreachable: Rows & { tried: string[]; read: string[][]; missing: string | null };
  duplicates: Rows & { groups: number; group: Tensor };
  hubs: Rows & { times: number[]; asked: number; neighbors: number; expected: number };
  zero: Rows;
  broken: Rows & { nan: number[]; infinite: number[] };
  beyond: Rows & { median: number | null };
}

export interface Examined {
  rows: number;
  name: string;
  tokenizer: boolean;
  seeds: number;
  threshold: number;
  norms: Histogram;
  cosines: Histogram;
  lists: Lists;
}

export interface Histogram {
  edges: Tensor;
  groups: { name: string; counts: Tensor }[];
}

export type ListName = keyof Lists;

interface List {
  title: string;
  /** What is wrong with these rows, and how that is known. */
  says(examined: Examined): string;
  more(examined: Examined): Column<number>[];
}

export const LISTS: Record<ListName, List> = {
  never: {
    title: "never trained",
    says: ({ lists: { never }, seeds, threshold }) =>
      `Nearest to the mean of the ${seeds} shortest rows first: cosine above ${told(threshold, 3)}, which is 8 robust standard deviations from the median, and at least 0.5.` +
      (never.also === null ? "" : ` ${whole(never.also)} of them no text leads to.`),
    more: ({ lists: { never } }) => [
      number("cosine to the shortest", (n) => never.cosines.values[n]!),
      number("likeness", (n) => never.likeness.values[n]!),
      ...(never.also === null ? [] : [{ title: "from text", value: (n: number) => (never.lost.values[n] ? "unreachable" : "reachable") }]),
    ],
  },
  unreachable: {
    title: "unreachable",
    says: ({ lists: { unreachable } }) =>
      unreachable.missing ?? "No text that was tried becomes this token: its own text, behind seven beginnings, is written as other tokens. The model can never read it.",
    more: ({ lists: { unreachable: { tried, read } } }) => [
      { title: "text tried", value: (n) => (n < tried.length ? readable(tried[n]!) : null) },
      { title: "read as", value: (n) => (n < read.length ? read[n]!.map(readable).join(" · ") : null) },
    ],
  },
  duplicates: {
    title: "duplicates",
    says: ({ lists: { duplicates } }) => `Rows that are equal to the last bit, in ${whole(duplicates.groups)} groups: the model cannot tell these tokens apart at its input.`,
    more: ({ lists: { duplicates } }) => [{ title: "group", numeric: true, value: (n) => duplicates.group.values[n]! + 1 }],
  },
  hubs: {
    title: "hubs",
    says: ({ lists: { hubs } }) =>
      `Among the ${hubs.neighbors} nearest of far more tokens than chance: ${whole(hubs.asked)} tokens were asked, and a row is named ${told(hubs.expected, 3)} times on average.`,
    more: ({ lists: { hubs } }) => [{ title: "times named", numeric: true, value: (n) => hubs.times[n]! }],
  },
  zero: { title: "zero", says: () => "Every number of the row is 0: such a token has no direction, and nothing is near to it.", more: () => [] },
  broken: {
    title: "not finite",
    says: () => "The row holds NaN or infinity, and a text with this token makes every number after it so.",
    more: ({ lists: { broken } }) => [
      { title: "NaN", numeric: true, value: (n) => broken.nan[n] ?? null },
      { title: "infinite", numeric: true, value: (n) => broken.infinite[n] ?? null },
    ],
  },
  beyond: {
    title: "beyond the vocabulary",
    says: ({ lists: { beyond } }) =>
      `Rows that no token has, often added to make the table's size a round number${beyond.median === null ? "" : `; their median length is ${told(beyond.median)}`}.`,
    more: () => [],
  },
};

export const NAMES = Object.keys(LISTS) as ListName[];

export function columnsOf(examined: Examined, name: ListName, card: (id: number) => string, map: (id: number) => string): Column<number>[] {
  const rows: Rows = examined.lists[name];
  const shown = (n: number) => readable(face(rows.words[n]!, rows.texts[n] ?? null));
  return [
    { title: "token", value: shown, cell: (n) => <TokenLabel word={rows.words[n]!} text={rows.texts[n] ?? null} href={card(rows.ids.values[n]!)} /> },
    { title: "id", numeric: true, value: (n) => rows.ids.values[n]! },
    { title: "kind", value: (n) => rows.kinds[n] ?? "" },
    { title: "length", numeric: true, value: (n) => rows.norms.values[n]!, cell: (n) => told(rows.norms.values[n]) },
    ...LISTS[name].more(examined),
    { title: "on the map", value: () => null, cell: (n) => <a href={map(rows.ids.values[n]!)} aria-label={`${shown(n)} on the map`}>map</a> },
  ];
}

function number(title: string, of: (n: number) => number): Column<number> {
  return { title, numeric: true, value: of, cell: (n) => fixed(of(n), 3) };
}
