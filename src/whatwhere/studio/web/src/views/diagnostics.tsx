/** Diagnostics: under-trained and unreachable tokens, duplicates, hubs, with the evidence. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { writeLink } from "../link";
import { formatNumber, whole } from "../numbers";
import { Bars, barsSvg } from "../parts/bars";
import { Figure } from "../parts/figure";
import { LineFigure, numberColumn } from "../parts/figures";
import type { LinesProps } from "../parts/lines";
import { JobAnswer } from "../parts/progress";
import { saveCsv } from "../parts/save";
import { Table } from "../parts/table";
import { register, type ViewProps } from "../register";
import type { RowHistogram, SuspiciousTokens } from "../types";
import { columnsOf, countOf, type ListName, LISTS, NAMES, rowsOf } from "./diagnostics/lists";

register({
  id: "diagnostics",
  title: "Diagnostics",
  question:
    "Which tokens look under-trained, which are unreachable by any text, and which rows of the table are faulty?",
  defaults: () => ({ list: "" }),
  byRun: true,
  Page: Diagnostics,
});

function Diagnostics({ settings, change }: ViewProps) {
  return (
    <JobAnswer name="diagnostics.examine" what="examining the table">
      {(examined) => <SuspiciousLists examined={examined} list={String(settings["list"])} change={change} />}
    </JobAnswer>
  );
}

function SuspiciousLists({
  examined,
  list,
  change,
}: {
  examined: SuspiciousTokens;
  list: string;
  change: ViewProps["change"];
}) {
  const some = NAMES.filter((name) => countOf(examined, name));
  const now = NAMES.find((name) => name === list) ?? some[0] ?? "under_trained";
  const { reference, threshold } = examined.found.under_trained;
  return (
    <>
      <Summary examined={examined} now={now} choose={(name) => change({ list: name })} />
      <List examined={examined} name={now} />
      <div class="halves">
        <Spread
          examined={examined}
          of={examined.norms}
          title="Norms of the rows"
          xLabel="norm |x|"
          marks={[]}
          note="Under-trained rows often have low norms: weight decay shrinks rows that no update moves."
        >
          |x| of each row of <code>{examined.name}</code>, in float64. Groups overlap: an unreachable token is often
          under-trained.
        </Spread>
        <Spread
          examined={examined}
          of={examined.cosines}
          title="Cosine to the rows of lowest norm"
          xLabel="cosine to the mean of the rows of lowest norm"
          marks={threshold < 1 ? [{ x: threshold, text: `suspected above ${formatNumber(threshold)}` }] : []}
          note={
            (threshold < 1
              ? ""
              : `The cosines vary so widely that only one above ${formatNumber(threshold)} would be suspected, and none exceeds 1. `) +
            "Updates that move under-trained rows alike give them one direction. Rows that keep a random " +
            "initialization share none: they are found where their norm lies far from the others'."
          }
        >
          The {reference.values.length} rows of lowest norm, half a percent, are the reference; cos(x − m, s − m), with
          m the mean of all rows and s the mean of the reference, the row itself excluded. Suspected are rows above 0.5
          and 8 robust standard deviations above the median. After Land and Bartolo 2024, who begin with a list made by
          hand.
        </Spread>
      </div>
    </>
  );
}

/** How many rows are in each list, as bars that choose the list. */
function Summary({
  examined,
  now,
  choose,
}: {
  examined: SuspiciousTokens;
  now: ListName;
  choose(name: ListName): void;
}) {
  const count = (name: ListName) => countOf(examined, name);
  const most = Math.max(1, ...NAMES.map((name) => count(name) ?? 0));
  const faulty = NAMES.some((name) => count(name));
  const title = `Suspicious rows among ${whole(examined.found.rows)}`;
  const bars = NAMES.map((name) => ({
    name: LISTS[name].title,
    share: (count(name) ?? 0) / most,
    text: count(name) === null ? "not known" : whole(count(name)!),
    choose: () => choose(name),
    chosen: name === now,
  }));
  return (
    <Figure
      title={title}
      note={
        faulty
          ? "Choose a list; a row may be in several."
          : `No list has a row: all are finite, none is 0 or equal to another. ${examined.none_suspected}`
      }
      file="diagnostics"
      svg={() => barsSvg(title, bars)}
      rows={NAMES}
      columns={[
        { title: "list", value: (name) => LISTS[name].title },
        numberColumn("rows", count, (rows) => (rows === null ? "not known" : whole(rows))),
        { title: "meaning", value: (name) => LISTS[name].describe(examined) },
      ]}
      code={"whatwhere inspect PATH --sections diagnostics --json"}
      how={
        <p>
          Norms and cosines in float64 over all rows of <code>{examined.name}</code>; duplicates by their bytes; hubs by
          the exact nearest rows of {whole(examined.found.hubs.queries)} tokens; unreachable by decoding each token
          behind seven short texts and encoding what comes out.
        </p>
      }
    >
      <Bars bars={bars} kind="choices" />
    </Figure>
  );
}

function List({ examined, name }: { examined: SuspiciousTokens; name: ListName }) {
  const { title, describe } = LISTS[name];
  const columns = useMemo(
    () =>
      columnsOf(
        name,
        (id) => writeLink("tokens", { token: `#${id}` }, {}),
        (id) => writeLink("map", { token: `#${id}` }, {}),
      ),
    [name],
  );
  const shown = rowsOf(examined, name);
  const count = countOf(examined, name);
  const csv = () =>
    saveCsv(
      `diagnostics-${name}`,
      columns.slice(0, -1).map((column) => column.title),
      shown.map((row) => columns.slice(0, -1).map((column) => column.value(row))),
    );
  return (
    <section aria-label={title} class="near">
      <h2>
        {whole(count ?? 0)} {title}
      </h2>
      <p class="note">
        {count !== 0 || name === "under_trained" || name === "unreachable" ? describe(examined) : "None."}
        {(count ?? 0) > shown.length && ` The first ${whole(shown.length)} are listed.`}
      </p>
      {shown.length > 0 && (
        <>
          <div class="tools">
            <button type="button" onClick={csv} aria-label={`Save ${title} as CSV`}>
              CSV
            </button>
          </div>
          <Table key={name} caption={`Rows: ${title}`} columns={columns} rows={shown} most={60} />
        </>
      )}
    </section>
  );
}

interface SpreadProps {
  examined: SuspiciousTokens;
  of: RowHistogram;
  title: string;
  xLabel: string;
  marks: { x: number; text: string }[];
  note: string;
  children: ComponentChildren;
}

const COLORS: Record<string, number> = { "all rows": 0, "under-trained": 1, unreachable: 2 };

/** A histogram of all rows, and of those that are suspected. */
function Spread({ examined, of, title, xLabel, marks, note, children }: SpreadProps) {
  const edges = of.edges.values;
  const props: LinesProps = useMemo(
    () => ({
      title,
      x: edges,
      // The last edge has no bin: the step goes down to 0.
      curves: of.groups.map(({ name, counts }) => ({ name, values: [...counts.values, 0], color: COLORS[name] ?? 0 })),
      xLabel,
      yLabel: "rows",
      steps: true,
      marks,
      height: 220,
    }),
    [examined],
  );
  return (
    <LineFigure
      lines={props}
      note={note}
      file={xLabel.startsWith("norm") ? "norms" : "cosines"}
      table={{
        rows: Array.from({ length: edges.length - 1 }, (_, n) => n),
        columns: [
          numberColumn("from", (n: number) => edges[n]),
          numberColumn("to", (n: number) => edges[n + 1]),
          ...of.groups.map(({ name, counts }) => ({
            title: name,
            numeric: true,
            value: (n: number) => counts.values[n]!,
          })),
        ],
      }}
      how={<p>{children}</p>}
    />
  );
}
