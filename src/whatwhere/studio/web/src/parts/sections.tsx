/** The parts of a report: paragraphs, tables and charts. Every text may come from a file, so each is escaped. */

import { upTo } from "../numbers";
import { Fragment } from "preact";
import { visible } from "../escape";
import { useView } from "../hooks";
import { writeLink } from "../link";
import type { About, Chart, Section, Series, Table as TableOfText } from "../types";
import { Bars, barsSvg } from "./bars";
import { Figure, LineFigure } from "./figure";
import { look } from "./plot";
import type { Cell } from "./save";
import { type Column, Table } from "./table";

const OPEN = 20;
/** Points of a line that are marked, so that each can be seen. */
const FEW = 20;
/** Blues come first: as in the other views, the first color is that of all rows. */
const COLORS = [2, 1, 0, 3, 4, 5, 6, 7];

export function Parts({ section: { parts } }: { section: Section }) {
  return (
    <>
      {parts.map((part, n) => {
        if (typeof part === "string") return <Prose key={n} text={part} />;
        if (!("series" in part)) return <TextTable key={n} table={part} />;
        const ChartFigure = part.kind === "bars" ? BarsFigure : CurvesFigure;
        return <ChartFigure key={n} chart={part} />;
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
function columnsOf({ columns, numeric, rows }: TableOfText, about: About, series: Series[] = []): Column<number>[] {
  return columns.map((name, n) => {
    const exact = series.find((each) => each.name === name);
    const text = (row: number) => rows[row]![n]!;
    return {
      title: visible(name),
      numeric: numeric.includes(n),
      value: (row) => (exact ? exact.values[row] : numeric.includes(n) ? numberOf(text(row)) : visible(text(row))),
      cell: (row) => {
        if (about.exported || !/^#\d+$/.test(text(row))) return <bdi>{visible(text(row))}</bdi>;
        return <a href={writeLink("tokens", { token: text(row) }, {})}>{text(row)}</a>;
      },
    };
  });
}

export function TextTable({ table }: { table: TableOfText }) {
  const { about } = useView();
  const caption = visible(table.caption);
  const { length } = table.rows;
  const shown = (
    <div>
      <Table caption={caption} columns={columnsOf(table, about)} rows={upTo(length)} saved />
    </div>
  );
  if (length <= OPEN) return shown;
  return (
    <details class="how">
      <summary>{caption}</summary>
      {shown}
    </details>
  );
}

function BarsFigure({ chart }: { chart: Chart }) {
  const { about } = useView();
  const { table, title, series } = chart;
  const [drawn] = series as [Series];
  const written = table.columns.indexOf(drawn.name);
  const bars = table.rows.map((row, n) => ({
    name: visible(row[0]!),
    share: (drawn.values[n] ?? 0) / (chart.x[1] || 1),
    color: "c1",
    text: row[written]!,
  }));
  return (
    <Figure
      title={title}
      note={visible(chart.note)}
      svg={() => barsSvg(title, bars)}
      rows={upTo(table.rows.length)}
      columns={columnsOf(table, about, series)}
      how={visible(chart.method)}
    >
      <Bars bars={bars} />
    </Figure>
  );
}

function CurvesFigure({ chart }: { chart: Chart }) {
  const steps = chart.kind === "histogram";
  const curves = chart.series.map(({ name, values, look: number }, n) => ({
    name,
    values,
    ...(number === null ? { color: COLORS[n % COLORS.length]! } : look(number)),
  }));
  return (
    <LineFigure
      title={chart.title}
      x={chart.x}
      curves={curves}
      xLabel={chart.x_label}
      yLabel={chart.y_label}
      logX={chart.log_x}
      steps={steps}
      dots={!steps && chart.x.length <= FEW}
      marks={chart.marks.map(([x, text]) => ({ x, text }))}
      note={visible(chart.note)}
      how={visible(chart.method)}
    />
  );
}

/** Return a number that is written for readers, to sort by; or the text that replaces it. */
function numberOf(cell: string): Cell {
  const number = Number(cell.replace(/,|\u00A0?%$| \(.*/g, "").replaceAll("−", "-"));
  return cell === "" ? null : Number.isFinite(number) ? number : visible(cell);
}
