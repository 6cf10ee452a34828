/** The lists of suspicious rows: what each means, and the evidence in its columns. */

import { writeLink } from "../../link";
import { formatNumber, whole } from "../../numbers";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import { shownToken, visibleToken } from "../../escape";
import type {
  FarRow,
  HubRow,
  NotFiniteRow,
  SuspiciousTokens,
  TokenDiagnostics,
  TokenRow,
  UnderTrainedRow,
  UnreachableRow,
} from "../../types";

export type ListName = Exclude<keyof TokenDiagnostics, "rows" | "unmoved">;

/** Any row of the lists, with the evidence that its list has. */
type Row = TokenRow & Partial<UnderTrainedRow & FarRow & UnreachableRow & HubRow & NotFiniteRow> & { group?: number };

interface List {
  title: string;
  /** What is suspicious about these rows, and how that is known. */
  describe(examined: SuspiciousTokens): string;
  more: Column<Row>[];
}

export const LISTS: Record<ListName, List> = {
  under_trained: {
    title: "under-trained",
    describe: ({ found: { under_trained: list }, none_suspected }) =>
      none_suspected ||
      `Suspected (“glitch tokens”), nearest to the mean of the ${list.reference.values.length} rows of lowest norm ` +
        `first: cosine above ${formatNumber(list.threshold)}, which is 8 robust standard deviations from the median, ` +
        "and at least 0.5." +
        (list.also_unreachable === null ? "" : ` ${whole(list.also_unreachable)} of them are unreachable.`),
    more: [
      { title: "cosine to the reference", decimals: 3, value: ({ cosine }) => cosine },
      { title: "proximity", decimals: 3, value: ({ proximity }) => proximity },
      {
        title: "from text",
        value: ({ reachable }) => (reachable === null ? "not known" : reachable ? "reachable" : "unreachable"),
      },
    ],
  },
  far: {
    title: "far from the others",
    describe: () =>
      "By norm or distance from the mean row, behind a gap that one in a thousand sound tables has: rows that " +
      "training never moved, or that something broke.",
    more: [
      { title: "distance from the mean", decimals: 3, value: ({ distance }) => distance },
      { title: "far by", value: ({ why }) => why },
    ],
  },
  unreachable: {
    title: "unreachable",
    describe: ({ found: { unreachable: list } }) =>
      "missing" in list
        ? list.missing
        : "No text that was tried is encoded to this token: its own text, behind seven beginnings, is encoded as other tokens.",
    more: [
      { title: "text tried", value: (row) => visibleToken(row.tried!) },
      { title: "encoded as", value: (row) => row.read_as!.map((part) => visibleToken(part)).join(" · ") },
    ],
  },
  duplicates: {
    title: "duplicates",
    describe: ({ found: { duplicates } }) =>
      `Rows that are equal to the last bit, in ${whole(duplicates.groups)} groups: ` +
      "the model cannot distinguish these tokens at its input.",
    more: [{ title: "group", numeric: true, value: ({ group }) => group }],
  },
  hubs: {
    title: "hubs",
    describe: ({ found: { hubs } }) =>
      `Among the ${hubs.neighbors} nearest neighbors of far more tokens than chance: ` +
      `of ${whole(hubs.queries)} tokens sampled, a row is a neighbor of ${formatNumber(hubs.expected)} on average.`,
    more: [{ title: "neighbor of", numeric: true, value: ({ times }) => times }],
  },
  zero: {
    title: "zero",
    describe: () => "Every number of the row is 0: such a token has no direction, and no nearest neighbors by cosine.",
    more: [],
  },
  not_finite: {
    title: "NaN or infinite",
    describe: () => "The row holds NaN or infinity, which spreads to every number computed from it.",
    more: [
      { title: "NaN", numeric: true, value: ({ nan }) => nan },
      { title: "infinite", numeric: true, value: ({ infinite }) => infinite },
    ],
  },
  beyond_vocabulary: {
    title: "beyond the vocabulary",
    describe: ({ found: { beyond_vocabulary: list } }) =>
      "missing" in list
        ? list.missing
        : "Rows without a token, often added to round the size of the table up" +
          (list.median_norm === null ? "." : `; their median norm is ${formatNumber(list.median_norm)}.`),
    more: [],
  },
};

export const NAMES = Object.keys(LISTS) as ListName[];

/** How many rows a list has; null where that is not known. */
export function countOf({ found }: SuspiciousTokens, name: ListName): number | null {
  if (name === "duplicates") return found.duplicates.rows;
  if (name === "hubs") return found.hubs.rows.length;
  const list = found[name];
  return "missing" in list ? null : list.count;
}

/** The rows of a list that are described. */
export function rowsOf({ found }: SuspiciousTokens, name: ListName): Row[] {
  if (name === "duplicates")
    return found.duplicates.examples.flatMap((rows, n) => rows.map((row) => ({ ...row, group: n + 1 })));
  if (name === "hubs") return found.hubs.rows;
  const list = found[name];
  return "missing" in list ? [] : list.examples;
}

export function columnsOf(name: ListName): Column<Row>[] {
  const shown = ({ token, text }: Row) => shownToken(token, text);
  const link = (view: string, { id }: Row) => writeLink(view, { token: `#${id}` }, {});
  return [
    {
      title: "token",
      value: shown,
      cell: (row) => <TokenLabel word={row.token} text={row.text} href={link("tokens", row)} />,
    },
    { title: "id", numeric: true, value: ({ id }) => id, cell: ({ id }) => id },
    { title: "type", value: ({ type }) => type },
    { title: "norm", numeric: true, value: ({ norm }) => norm },
    ...LISTS[name].more,
    {
      title: "on the map",
      value: (row) => link("map", row),
      cell: (row) => (
        <a href={link("map", row)} aria-label={`${shown(row)} on the map`}>
          map
        </a>
      ),
    },
  ];
}
