/** The lists of suspicious rows: what each means, and the evidence in its columns. */

import { fixed, formatNumber, whole } from "../../numbers";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import { face, visibleToken } from "../../escape";
import type { SuspiciousLists, SuspiciousRows, SuspiciousTokens } from "../../types";

export type ListName = keyof SuspiciousLists;

interface List {
  title: string;
  /** What is suspicious about these rows, and how that is known. */
  describe(examined: SuspiciousTokens): string;
  more(examined: SuspiciousTokens): Column<number>[];
}

export const LISTS: Record<ListName, List> = {
  under_trained: {
    title: "under-trained",
    describe: ({ lists: { under_trained }, reference, threshold, none_suspected }) =>
      none_suspected ||
      `Suspected (“glitch tokens”), nearest to the mean of the ${reference} rows of lowest norm first: ` +
        `cosine above ${formatNumber(threshold)}, which is 8 robust standard deviations from the median, and at least 0.5.` +
        (under_trained.also_unreachable === null
          ? ""
          : ` ${whole(under_trained.also_unreachable)} of them are unreachable.`),
    more: ({ lists: { under_trained } }) => [
      number("cosine to the reference", (n) => under_trained.cosines.values[n]!),
      number("proximity", (n) => under_trained.proximity.values[n]!),
      ...(under_trained.also_unreachable === null
        ? []
        : [
            {
              title: "from text",
              value: (n: number) => (under_trained.unreachable.values[n] ? "unreachable" : "reachable"),
            },
          ]),
    ],
  },
  far: {
    title: "far from the others",
    describe: () =>
      "By norm or distance from the mean row, behind a gap that one in a thousand sound tables has: rows that " +
      "training never moved, or that something broke.",
    more: ({ lists: { far } }) => [
      number("distance from the mean", (n) => far.distances.values[n]!),
      { title: "far by", value: (n) => far.why[n]! },
    ],
  },
  unreachable: {
    title: "unreachable",
    describe: ({ lists: { unreachable } }) =>
      unreachable.missing ??
      "No text that was tried is encoded to this token: its own text, behind seven beginnings, " +
        "is encoded as other tokens.",
    more: ({
      lists: {
        unreachable: { texts_tried, read_as },
      },
    }) => [
      { title: "text tried", value: (n) => (n < texts_tried.length ? visibleToken(texts_tried[n]!) : null) },
      {
        title: "encoded as",
        value: (n) => (n < read_as.length ? read_as[n]!.map((part) => visibleToken(part)).join(" · ") : null),
      },
    ],
  },
  duplicates: {
    title: "duplicates",
    describe: ({ lists: { duplicates } }) =>
      `Rows that are equal to the last bit, in ${whole(duplicates.groups)} groups: ` +
      "the model cannot distinguish these tokens at its input.",
    more: ({ lists: { duplicates } }) => [
      { title: "group", numeric: true, value: (n) => duplicates.group.values[n]! + 1 },
    ],
  },
  hubs: {
    title: "hubs",
    describe: ({ lists: { hubs } }) =>
      `Among the ${hubs.neighbors} nearest neighbors of far more tokens than chance: ` +
      `of ${whole(hubs.queries)} tokens sampled, a row is a neighbor of ${formatNumber(hubs.expected)} on average.`,
    more: ({ lists: { hubs } }) => [{ title: "neighbor of", numeric: true, value: (n) => hubs.times[n]! }],
  },
  zero: {
    title: "zero",
    describe: () => "Every number of the row is 0: such a token has no direction, and no nearest neighbors by cosine.",
    more: () => [],
  },
  not_finite: {
    title: "NaN or infinite",
    describe: () => "The row holds NaN or infinity, which spreads to every number computed from it.",
    more: ({ lists: { not_finite } }) => [
      { title: "NaN", numeric: true, value: (n) => not_finite.nan[n] ?? null },
      { title: "infinite", numeric: true, value: (n) => not_finite.infinite[n] ?? null },
    ],
  },
  beyond_vocabulary: {
    title: "beyond the vocabulary",
    describe: ({ lists: { beyond_vocabulary } }) =>
      beyond_vocabulary.missing ??
      "Rows without a token, often added to round the size of the table up" +
        (beyond_vocabulary.median_norm === null
          ? "."
          : `; their median norm is ${formatNumber(beyond_vocabulary.median_norm)}.`),
    more: () => [],
  },
};

export const NAMES = Object.keys(LISTS) as ListName[];

export function columnsOf(
  examined: SuspiciousTokens,
  name: ListName,
  card: (id: number) => string,
  map: (id: number) => string,
): Column<number>[] {
  const rows: SuspiciousRows = examined.lists[name];
  const shown = (n: number) => visibleToken(face(rows.words[n]!, rows.texts[n] ?? null));
  return [
    {
      title: "token",
      value: shown,
      cell: (n) => <TokenLabel word={rows.words[n]!} text={rows.texts[n] ?? null} href={card(rows.ids.values[n]!)} />,
    },
    { title: "id", numeric: true, value: (n) => rows.ids.values[n]! },
    { title: "type", value: (n) => rows.kinds[n] ?? "" },
    {
      title: "norm",
      numeric: true,
      value: (n) => rows.norms.values[n]!,
      cell: (n) => formatNumber(rows.norms.values[n]),
    },
    ...LISTS[name].more(examined),
    {
      title: "on the map",
      value: () => null,
      cell: (n) => (
        <a href={map(rows.ids.values[n]!)} aria-label={`${shown(n)} on the map`}>
          map
        </a>
      ),
    },
  ];
}

function number(title: string, of: (n: number) => number): Column<number> {
  return { title, numeric: true, value: of, cell: (n) => fixed(of(n), 3) };
}
