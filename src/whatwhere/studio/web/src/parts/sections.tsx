/** The parts of a report: paragraphs, tables and charts. Every text may come from a file, so each is escaped. */

import { upTo } from "../numbers";
import { type ComponentChildren, Fragment } from "preact";
import { useState } from "preact/hooks";
import { visible } from "../escape";
import { useView } from "../hooks";
import { writeLink } from "../link";
import type { About, Chart, Findings, Section, Series, Table as TableOfText } from "../types";
import { Bars, barsSvg } from "./bars";
import { Figure, HeatFigure, How, LineFigure } from "./figure";
import { type Curve, DEEP_BIASES, type LinesProps, look, readableBiases, strokeOf } from "./plot";
import type { Cell } from "./save";
import { type Column, RANGE, Table } from "./table";

const OPEN = 20;
/** Points of a line that are marked, so that each can be seen. */
const FEW = 20;
/** Blues come first: as in the other views, the first color is that of all rows. */
const COLORS = [2, 1, 0, 3, 4, 5, 6, 7];

interface FindingsProps {
  of: Findings;
  code: string;
  how: string;
  /** Whether long tables are shown at once, too. */
  open?: boolean;
  /** What follows a section. */
  after?(section: Section): ComponentChildren;
  /** What is between the headline and the sections. */
  children?: ComponentChildren;
}

export function Sections({ of: { headline, sections }, code, how, open = false, after, children }: FindingsProps) {
  return (
    <>
      <p class="answer">{visible(headline)}.</p>
      {children}
      {sections.map((section) => {
        const [Part, Head] = section.folded ? (["details", "summary"] as const) : ([Fragment, Fragment] as const);
        return (
          <section key={section.name} class="near apart" aria-label={section.title}>
            <Part>
              <Head>
                <h2 id={`section-${section.name}`} tabIndex={-1}>
                  {section.title}
                </h2>
              </Head>
              <div class="beside">
                <Parts section={section} open={open} />
              </div>
            </Part>
            {after?.(section)}
          </section>
        );
      })}
      <How code={code} text={how} />
    </>
  );
}

function Parts({ section: { parts }, open }: { section: Section; open: boolean }) {
  const hidden = useState(new Set<string>());
  const charts = parts.filter((part) => typeof part === "object" && "series" in part) as Chart[];
  return (
    <>
      {parts.map((part, n) => {
        if (typeof part === "string") return <Prose key={n} text={part} />;
        if (!("series" in part)) return <TextTable key={part.caption} table={part} open={open} />;
        const ChartFigure = FIGURES[part.kind];
        const of = (chart: Chart) => chart.kind + chart.series.map(({ name }) => `\n${name}`).join("");
        const alike = charts.filter((chart) => of(chart) === of(part));
        const shared = alike.length > 1 ? { hidden, bare: alike[0] !== part } : {};
        return <ChartFigure key={n} chart={part} alone={charts.length === 1} shared={shared} />;
      })}
    </>
  );
}

/** A paragraph; tokens that it lists may be written from right to left, and change the order of no others. */
function Prose({ text }: { text: string }) {
  return (
    <p>
      {visible(text)
        .split(", ")
        .map((piece, n) => (
          <Fragment key={n}>
            {n > 0 && ", "}
            <span class="isolated">{piece}</span>
          </Fragment>
        ))}
    </p>
  );
}

/** Return the columns of a table, over the numbers of its rows; series have the exact numbers of those they name. */
function columnsOf(
  { columns, numeric, rows, exact: known }: TableOfText,
  about: About,
  series = known,
): Column<number>[] {
  return columns.map((name, n) => {
    const exact = series.find((each) => each.name === name);
    const text = (row: number) => rows[row]![n]!;
    return {
      title: visible(name),
      numeric: numeric.includes(n),
      value: (row) => (exact ? exact.values[row] : numeric.includes(n) ? numberOf(text(row)) : visible(text(row))),
      cell: (row) => {
        const [, median, range] = RANGE.exec(text(row)) ?? [];
        if (range) return [`${median} `, <span class="range">{range}</span>];
        if (!/^#\d+$/.test(text(row))) return <bdi>{visible(text(row))}</bdi>;
        const link = (view: string, word: string) => <a href={writeLink(view, { token: text(row) }, {})}>{word}</a>;
        return (
          <>
            {about.exported ? text(row) : link("tokens", text(row))} {about.views["map"] && link("map", "map")}
          </>
        );
      },
    };
  });
}

function TextTable({ table, open }: { table: TableOfText; open: boolean }) {
  const { about } = useView();
  if (table.bars) return <BarsFigure chart={{ table }} />;
  const caption = visible(table.caption);
  const { length } = table.rows;
  const shown = (
    <div>
      <Table caption={caption} columns={columnsOf(table, about)} rows={upTo(length)} saved />
    </div>
  );
  if (open || length <= OPEN) return shown;
  return (
    <details class="how">
      <summary>{caption}</summary>
      {shown}
    </details>
  );
}

/** Bars of a chart, or of a table that has their lengths, beside its first numbers. */
function BarsFigure({ chart }: { chart: Pick<Chart, "table"> & Partial<Chart> }) {
  const { about } = useView();
  const { table, title = table.caption, series = table.exact, x = [0, 1], note = "", method = "" } = chart;
  const written = chart.series ? table.columns.indexOf(series[0]!.name) : table.numeric[0] || 1;
  const bars = table.rows.map((row, n) => ({
    name: visible(row[0]!),
    share: table.bars?.[n] ?? (series[0]!.values[n] ?? 0) / (x[1] || 1),
    color: "c1",
    text: row[written]!,
  }));
  return (
    <Figure
      title={visible(title)}
      note={visible(note)}
      svg={() => barsSvg(title, bars)}
      rows={upTo(table.rows.length)}
      columns={columnsOf(table, about, series)}
      how={visible(method)}
    >
      <Bars bars={bars} />
    </Figure>
  );
}

/** Strokes of baselines, which all are thin and gray. */
const BASELINES = ["1 3", "7 4", "12 3 2 3", "3 7"];

/** Return a series as a curve: baselines are gray, and curves of one scheme differ by their strokes. */
function curveOf({ low, high, look: number, reference, ...series }: Series, n: number, all: Series[]): Curve {
  const before = (same: (other: Series) => boolean) => all.slice(0, n).filter(same).length;
  if (reference) {
    const dash = BASELINES[before((other) => other.reference) % BASELINES.length]!;
    return { ...series, color: 0, dash, baseline: true };
  }
  const band = low.length ? { low, high } : {};
  if (number === null) return { ...series, ...band, color: COLORS[n % COLORS.length]! };
  const earlier = before((other) => other.look === number);
  return { ...series, ...band, ...look(number), ...(earlier && strokeOf(number + earlier)) };
}

/** A figure of curves; one that is alone in its section is taller. */
function CurvesFigure({ chart, alone, shared }: { chart: Chart; alone: boolean; shared: Partial<LinesProps> }) {
  const steps = chart.kind === "histogram";
  const curves = chart.series.map(curveOf);
  const readable: Partial<LinesProps> = /bias/i.test(chart.y_label) ? readableBiases(curves) : {};
  const [low = 0, high = 0] = chart.y_range ?? [];
  return (
    <LineFigure
      title={chart.title}
      x={chart.x}
      curves={curves}
      xLabel={chart.x_label}
      yLabel={chart.y_label}
      logX={chart.log_x}
      {...shared}
      height={alone ? 340 : 240}
      steps={steps}
      dots={!steps && chart.x.length <= FEW}
      marks={chart.marks.map(([x, text]) => ({ x, text }))}
      {...(chart.y_range && { y: [low, high + 0.03 * (high - low)] })}
      {...readable}
      note={visible(chart.note) + (readable.y ? DEEP_BIASES : "")}
      how={visible(chart.method)}
    />
  );
}

function PictureFigure({ chart: { series, ...chart } }: { chart: Chart }) {
  const values = Float32Array.from(series.flatMap((row) => row.values.map((value) => value ?? Number.NaN)));
  // Few rows of many cells, such as heads by distance, are columns of the table.
  const few = series.length < Math.min(FEW, chart.x.length);
  const column = ({ name, values }: Series): Column<number> => ({ title: name, decimals: 4, value: (n) => values[n] });
  const at: Column<number> = { title: chart.x_label, numeric: true, value: (n) => chart.x[n] };
  const turned = few ? { rows: upTo(chart.x.length), columns: [at, ...series.map(column)] } : {};
  return (
    <HeatFigure
      {...turned}
      title={chart.title}
      cells={{ values, shape: [series.length, values.length / series.length] }}
      xLabel={chart.x_label}
      yLabel={chart.y_label}
      cell={series.length > FEW ? 4 : 24}
      note={visible(chart.note)}
      how={visible(chart.method)}
    />
  );
}

const FIGURES = { bars: BarsFigure, lines: CurvesFigure, histogram: CurvesFigure, picture: PictureFigure };

/** Return a number that is written for readers, to sort by; or the text that replaces it. */
function numberOf(cell: string): Cell {
  const number = Number(cell.replace(/,|\u00A0?%$| \(.*/g, "").replaceAll("−", "-"));
  return cell === "" ? null : Number.isFinite(number) ? number : visible(cell);
}
