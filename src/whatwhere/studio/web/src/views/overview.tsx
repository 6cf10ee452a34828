/** The overview: what inspects a checkpoint says of its input layer, in sentences, tables and two figures. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { writeLink } from "../link";
import { told, whole } from "../numbers";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { Lines, type LinesProps, linesSvg } from "../parts/lines";
import { Worked } from "../parts/progress";
import { type Cell, saveCsv } from "../parts/save";
import { type Column, Table } from "../parts/table";
import { register, type ViewProps, views } from "../register";
import type { About } from "../source";
import type { Tensor } from "../wire";

interface Told {
  caption: string;
  head: string[];
  rows: string[][];
  /** Which columns hold numbers. */
  numbers: number[];
  /** The figure that shows the same, or "". */
  drawn: "" | "lengths" | "spectra";
}

interface Passage {
  name: string;
  title: string;
  parts: ({ said: string } | Told)[];
}

interface Inspected {
  answer: string;
  made: { checkpoint: string; whatwhere: string; seed: number };
  passages: Passage[];
  lengths: { edges: Tensor; counts: Tensor; rows: number; median: number } | null;
  spectra: { name: string; shares: Tensor; dim: number; for_ninety: number | null }[];
}

/** Views that show more of a section. */
const MORE: Record<string, string> = { shares: "against", norms: "tokens", spectrum: "map", unhealthy: "health", positions: "positions", rotary: "rotary", biases: "biases" };
/** Rows of a table that stand open. */
const OPEN = 20;

register({
  id: "overview",
  order: 1.5,
  title: "Overview",
  question: "What are the tokens of this file, and what says where they stand?",
  defaults: () => ({ section: "" }),
  shown: (about) => about.kind === "checkpoint" || about.tables.input !== undefined,
  Page: Overview,
});

function Overview({ about, settings }: ViewProps) {
  return (
    <Worked<Inspected> name="overview.inspected" what="inspecting">
      {(inspected) => <Found inspected={inspected} about={about} section={String(settings["section"])} />}
    </Worked>
  );
}

function Found({ inspected, about, section }: { inspected: Inspected; about: About; section: string }) {
  const { answer, made, passages } = inspected;
  const now = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    now.current?.scrollIntoView();
    now.current?.focus({ preventScroll: true });
  }, [section]);
  return (
    <>
      <p class="answer">{answer}.</p>
      <ul class="plain examples" aria-label="Sections">
        {passages.map(({ name, title }) => (
          <li key={name}>
            <a href={writeLink("overview", { section: name }, {})}>{title}</a>
          </li>
        ))}
      </ul>
      {passages.map((passage) => (
        <section key={passage.name} class="near apart" aria-label={passage.title}>
          <h2 ref={passage.name === section ? now : null} tabIndex={-1}>
            {passage.title}
          </h2>
          <div class="beside">
            {passage.parts.map((part, n) =>
              "said" in part ? <p key={n}>{part.said}</p> : part.drawn === "lengths" ? <Lengths key={n} inspected={inspected} /> : part.drawn === "spectra" ? <Spectra key={n} spectra={inspected.spectra} /> : <Listed key={n} table={part} about={about} />,
            )}
          </div>
          <More about={about} view={MORE[passage.name]} />
        </section>
      ))}
      <How code={'from whatwhere.inspection import inspect\n\ninspect(PATH).data["sections"]  # in a terminal: whatwhere inspect'}>
        <p>
          Format: {made.checkpoint}. Read by whatwhere {made.whatwhere}, samples drawn with seed {made.seed}; lengths and shares are computed in float64.
        </p>
      </How>
    </>
  );
}

function More({ about, view }: { about: About; view: string | undefined }) {
  const there = views(about).find(({ id }) => id === view);
  return there ? (
    <p>
      More: <a href={`#/${there.id}`}>{there.title}</a>
    </p>
  ) : null;
}

function Listed({ table, about }: { table: Told; about: About }) {
  const { caption, head, rows, numbers } = table;
  const columns: Column<string[]>[] = head.map((title, n) => ({
    title,
    numeric: numbers.includes(n),
    value: (row) => (numbers.includes(n) ? numberOf(row[n]!) : row[n]!),
    cell: (row) => (/^#\d+$/.test(row[n]!) && !about.frozen ? <a href={writeLink("tokens", { token: row[n]! }, {})}>{row[n]}</a> : <bdi>{row[n]}</bdi>),
  }));
  const file = caption.replace(/[^a-z]+/gi, "-").toLowerCase();
  const shown = (
    <div>
      <Table caption={caption} columns={columns} rows={rows} />
      <div class="tools">
        <button type="button" aria-label={`Save ${caption} as CSV`} onClick={() => saveCsv(file, head, rows.map((row) => columns.map((column) => column.value(row))))}>
          CSV
        </button>
      </div>
    </div>
  );
  if (rows.length <= OPEN) return shown;
  return (
    <details class="how">
      <summary>{caption}</summary>
      {shown}
    </details>
  );
}

/** Give a number that is written for readers, to sort by; or the words that stand in its place. */
function numberOf(cell: string): Cell {
  const number = Number(cell.replace(/,| %$/g, ""));
  return cell === "" ? null : Number.isFinite(number) ? number : cell;
}

function Lengths({ inspected }: { inspected: Inspected }) {
  const { lengths } = inspected;
  const title = "Lengths of the token rows";
  const props: LinesProps = useMemo(
    () => ({
      title,
      x: lengths?.edges.values ?? [],
      // The last edge has no bin: the step goes down to 0.
      curves: [{ name: "rows", values: [...(lengths?.counts.values ?? []), 0], color: 2 }],
      xLabel: "length |x|",
      yLabel: "rows",
      steps: true,
      marks: lengths ? [{ x: lengths.median, text: `median ${told(lengths.median, 3)}` }] : [],
      height: 220,
    }),
    [inspected],
  );
  if (!lengths) return null;
  const edges = lengths.edges.values;
  return (
    <Figure
      title={title}
      note="A second hill at the low end are rows that training hardly touched."
      file="overview-lengths"
      svg={() => linesSvg(props)}
      rows={Array.from(lengths.counts.values, (_, n) => n)}
      columns={[
        { title: "from", numeric: true, value: (n) => edges[n]!, cell: (n) => told(edges[n]) },
        { title: "to", numeric: true, value: (n) => edges[n + 1]!, cell: (n) => told(edges[n + 1]) },
        { title: "rows", numeric: true, value: (n) => lengths.counts.values[n]!, cell: (n) => whole(lengths.counts.values[n]!) },
      ]}
      how={
        <How>
          <p>|x| of the {whole(lengths.rows)} rows that hold finite numbers, counted in bins of one width.</p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}

function Spectra({ spectra }: { spectra: Inspected["spectra"] }) {
  const title = "Variance along the principal axes";
  const axes = useMemo(() => Array.from({ length: Math.max(...spectra.map(({ shares }) => shares.values.length)) }, (_, n) => n + 1), [spectra]);
  const props: LinesProps = useMemo(
    () => ({
      title,
      x: axes,
      curves: spectra.map(({ name, shares }, k) => ({ name, values: axes.map((n) => (n <= shares.values.length ? 100 * shares.values[n - 1]! : null)), color: 2 - k })),
      xLabel: "axis",
      yLabel: "share of the variance, %",
      height: 220,
    }),
    [spectra],
  );
  return (
    <Figure
      title={title}
      note={`The first ${axes.length} axes: the steeper the fall, the fewer directions the rows use.`}
      file="overview-spectra"
      svg={() => linesSvg(props)}
      rows={axes}
      columns={[
        { title: "axis", numeric: true, value: (n) => n },
        ...spectra.map(({ name, shares }) => ({ title: `${name}, %`, numeric: true, value: (n: number) => (n <= shares.values.length ? 100 * shares.values[n - 1]! : null), cell: (n: number) => told(n <= shares.values.length ? 100 * shares.values[n - 1]! : null, 3) })),
      ]}
      how={
        <How>
          <p>Principal components of the rows less their mean, in float64: each axis holds its share of the sum of squares.</p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}
