/** Diagnostics: under-trained and unreachable tokens, duplicates, hubs, with the evidence. */

import type { ComponentChildren } from "preact";
import { useView } from "../hooks";
import { formatNumber, whole } from "../numbers";
import { Bars, barsSvg } from "../parts/bars";
import { Figure, LineFigure } from "../parts/figure";
import { JobAnswer } from "../parts/progress";
import { Table } from "../parts/table";
import { register } from "../register";
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

function Diagnostics() {
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
          file="norms"
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
          file="cosines"
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
      file="diagnostics"
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
      {rows.length > 0 && (
        <Table key={now} caption={`Rows: ${title}`} columns={columnsOf(now)} rows={rows} file={`diagnostics-${now}`} />
      )}
    </section>
  );
}

interface SpreadProps {
  of: RowHistogram;
  title: string;
  xLabel: string;
  file: string;
  marks?: { x: number; text: string }[];
  note: string;
  how: ComponentChildren;
}

const COLORS: Record<string, number> = { "all rows": 0, "under-trained": 1, unreachable: 2 };

/** A histogram of all rows, and of those that are suspected. */
function Spread({ of, ...figure }: SpreadProps) {
  const curves = Object.entries(of.groups).map(([name, { values }]) => ({ name, values, color: COLORS[name] ?? 0 }));
  return <LineFigure x={of.edges.values} curves={curves} yLabel="rows" steps height={220} {...figure} />;
}
