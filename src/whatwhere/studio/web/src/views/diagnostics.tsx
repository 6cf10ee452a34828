/** Diagnostics: under-trained and unreachable tokens, duplicates, hubs, with the evidence. */

import type { ComponentChildren } from "preact";
import { shownToken, visibleToken } from "../escape";
import { useView } from "../hooks";
import { writeLink } from "../link";
import { formatNumber, whole } from "../numbers";
import { Bars, barsSvg } from "../parts/bars";
import { Figure, LineFigure } from "../parts/figure";
import { JobAnswer } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { TokenLabel } from "../parts/field";
import type {
  FarRow,
  HubRow,
  NotFiniteRow,
  RowHistogram,
  SuspiciousTokens,
  TokenDiagnostics,
  TokenRow,
  UnderTrainedRow,
  UnreachableRow,
} from "../types";

export function Diagnostics() {
  return (
    <JobAnswer name="diagnostics.examine" what="examining the table">
      {(examined) => <SuspiciousLists examined={examined} />}
    </JobAnswer>
  );
}

function SuspiciousLists({ examined }: { examined: SuspiciousTokens }) {
  const { list } = useView<{ list: string }>().settings;
  const some = NAMES.filter((name) => countOf(examined, name));
  const now = NAMES.find((name) => name === list) ?? some[0] ?? "under_trained";
  const { reference, threshold } = examined.found.under_trained;
  const above = formatNumber(threshold);
  return (
    <>
      <Summary examined={examined} now={now} />
      <List examined={examined} now={now} />
      <div class="halves">
        <Spread
          of={examined.norms}
          title="Norms of the rows"
          xLabel="norm |x|"
          note="Under-trained rows often have low norms: weight decay shrinks rows that no update moves."
          how={
            <>
              |x| of each row of <code>{examined.name}</code>, in float64. Groups overlap: an unreachable token is often
              under-trained.
            </>
          }
        />
        <Spread
          of={examined.cosines}
          title="Cosine to the rows of lowest norm"
          xLabel="cosine to the mean of the rows of lowest norm"
          marks={threshold < 1 ? [{ x: threshold, text: `suspected above ${above}` }] : []}
          note={
            (threshold < 1
              ? ""
              : `The cosines vary so widely that only one above ${above} would be suspected, and none exceeds 1. `) +
            "Updates that move under-trained rows alike give them one direction. Rows that keep a random " +
            "initialization share none: they are found where their norm lies far from the others'."
          }
          how={
            `The ${reference.values.length} rows of lowest norm, half a percent, are the reference; cos(x − m, s − m), ` +
            "with m the mean of all rows and s the mean of the reference, the row itself excluded. Suspected are rows " +
            "above 0.5 and 8 robust standard deviations above the median. After Land and Bartolo 2024, who begin with a " +
            "list made by hand."
          }
        />
      </div>
    </>
  );
}

interface ListProps {
  examined: SuspiciousTokens;
  now: ListName;
}

/** How many rows are in each list, as bars that choose the list. */
function Summary({ examined, now }: ListProps) {
  const { change } = useView();
  const count = (name: ListName) => countOf(examined, name);
  const most = Math.max(1, ...NAMES.map((name) => count(name) ?? 0));
  const title = `Suspicious rows among ${whole(examined.found.rows)}`;
  const written = (name: ListName) => (count(name) === null ? "not known" : whole(count(name)!));
  const bars = NAMES.map((name) => ({
    name: LISTS[name].title,
    share: (count(name) ?? 0) / most,
    text: written(name),
    choose: () => change({ list: name }),
    chosen: name === now,
  }));
  return (
    <Figure
      title={title}
      note={
        NAMES.some(count)
          ? "Choose a list; a row may be in several."
          : `No list has a row: all are finite, none is 0 or equal to another. ${examined.none_suspected}`
      }
      svg={() => barsSvg(title, bars)}
      rows={NAMES}
      columns={[
        { title: "list", value: (name) => LISTS[name].title },
        { title: "rows", numeric: true, value: count, cell: written },
        { title: "meaning", value: (name) => LISTS[name].describe(examined) },
      ]}
      code={"whatwhere inspect PATH --sections diagnostics --json"}
      how={
        <>
          Norms and cosines in float64 over all rows of <code>{examined.name}</code>; duplicates by their bytes; hubs by
          the exact nearest rows of {whole(examined.found.hubs.queries)} tokens; unreachable by decoding each token
          behind seven short texts and encoding what comes out.
        </>
      }
    >
      <Bars bars={bars} kind="choices" />
    </Figure>
  );
}

function List({ examined, now }: ListProps) {
  const { title, describe } = LISTS[now];
  const rows = rowsOf(examined, now);
  const count = countOf(examined, now);
  return (
    <section aria-label={title} class="near">
      <h2>
        {whole(count ?? 0)} {title}
      </h2>
      <p class="note">
        {count !== 0 || now === "under_trained" || now === "unreachable" ? describe(examined) : "None."}
        {(count ?? 0) > rows.length && ` The first ${whole(rows.length)} are listed.`}
      </p>
      {rows.length > 0 && <Table key={now} caption={`Rows: ${title}`} columns={columnsOf(now)} rows={rows} saved />}
    </section>
  );
}

interface SpreadProps {
  of: RowHistogram;
  title: string;
  xLabel: string;
  marks?: { x: number; text: string }[];
  note: string;
  how: ComponentChildren;
}

const COLORS: Record<string, number> = { "all rows": 0, "under-trained": 1, unreachable: 2 };

function Spread({ of, ...figure }: SpreadProps) {
  const curves = Object.entries(of.groups).map(([name, { values }]) => ({ name, values, color: COLORS[name] ?? 0 }));
  return <LineFigure x={of.edges.values} curves={curves} yLabel="rows" steps {...figure} />;
}

type ListName = Exclude<keyof TokenDiagnostics, "rows" | "unmoved">;

/** Any row of the lists, with the evidence that its list has. */
type Row = TokenRow & Partial<UnderTrainedRow & FarRow & UnreachableRow & HubRow & NotFiniteRow> & { group?: number };

interface List {
  title: string;
  describe(examined: SuspiciousTokens): string;
  more: Column<Row>[];
}

const LISTS: Record<ListName, List> = {
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

const NAMES = Object.keys(LISTS) as ListName[];

/** How many rows a list has; null where that is not known. */
function countOf({ found }: SuspiciousTokens, name: ListName): number | null {
  if (name === "duplicates") return found.duplicates.rows;
  if (name === "hubs") return found.hubs.rows.length;
  const list = found[name];
  return "missing" in list ? null : list.count;
}

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
