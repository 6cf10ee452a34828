/** The lists of suspicious rows: what each means, and the evidence in its columns. */

import { fixed, formatNumber, whole } from "../../numbers";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import { face, visibleToken } from "../../escape";
import type {
  FarRow,
  HubRow,
  Missing,
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
      number("cosine to the reference", (row) => row.cosine!),
      number("proximity", (row) => row.proximity!),
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
      number("distance from the mean", (row) => row.distance!),
      { title: "far by", value: (row) => row.why ?? "" },
    ],
  },
  unreachable: {
    title: "unreachable",
    describe: ({ found: { unreachable } }) =>
      missing(unreachable) ??
      "No text that was tried is encoded to this token: its own text, behind seven beginnings, " +
        "is encoded as other tokens.",
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
    more: [{ title: "group", numeric: true, value: (row) => row.group! }],
  },
  hubs: {
    title: "hubs",
    describe: ({ found: { hubs } }) =>
      `Among the ${hubs.neighbors} nearest neighbors of far more tokens than chance: ` +
      `of ${whole(hubs.queries)} tokens sampled, a row is a neighbor of ${formatNumber(hubs.expected)} on average.`,
    more: [{ title: "neighbor of", numeric: true, value: (row) => row.times! }],
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
      { title: "NaN", numeric: true, value: (row) => row.nan! },
      { title: "infinite", numeric: true, value: (row) => row.infinite! },
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

/** Why a list is not known; null where it is. */
function missing(list: object): string | null {
  return "missing" in list ? (list as Missing).missing : null;
}

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

export function columnsOf(name: ListName, card: (id: number) => string, map: (id: number) => string): Column<Row>[] {
  const shown = (row: Row) => visibleToken(face(row.token, row.text));
  return [
    {
      title: "token",
      value: shown,
      cell: (row) => <TokenLabel word={row.token} text={row.text} href={card(row.id)} />,
    },
    { title: "id", numeric: true, value: (row) => row.id },
    { title: "type", value: (row) => row.type },
    { title: "norm", numeric: true, value: (row) => row.norm, cell: (row) => formatNumber(row.norm) },
    ...LISTS[name].more,
    {
      title: "on the map",
      value: () => null,
      cell: (row) => (
        <a href={map(row.id)} aria-label={`${shown(row)} on the map`}>
          map
        </a>
      ),
    },
  ];
}

function number(title: string, of: (row: Row) => number): Column<Row> {
  return { title, numeric: true, value: of, cell: (row) => fixed(of(row), 3) };
}
