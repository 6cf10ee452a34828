/** The parts of a report: paragraphs, tables and charts. Every text may come from a file, so each is escaped. */

import { Fragment } from "preact";
import { useMemo } from "preact/hooks";
import { visible } from "../escape";
import { writeLink } from "../link";
import type { About, Chart, Section, Series, Table as TableOfText } from "../types";
import { Bars, barsSvg } from "./bars";
import { Figure } from "./figure";
import { LineFigure, numberColumn } from "./figures";
import type { LinesProps } from "./lines";
import { look } from "./plot";
import { type Cell, saveCsv } from "./save";
import { type Column, Table } from "./table";

/** Rows of a table that is shown open; a longer one is folded. */
const OPEN = 20;
/** Points of a line that are marked, so that each can be seen. */
const FEW = 20;
/** Blues come first: as in the other views, the first color is that of all rows. */
const COLORS = [2, 1, 0, 3, 4, 5, 6, 7];

export function Parts({ section, about }: { section: Section; about: About }) {
  return (
    <>
      {section.parts.map((part, n) => {
        if ("text" in part) return <Prose key={n} text={part.text} />;
        if (!("series" in part)) return <TextTable key={n} table={part} about={about} />;
        if (part.kind === "bars") return <BarsFigure key={n} chart={part} name={section.name} about={about} />;
        return <ChartFigure key={n} chart={part} name={section.name} />;
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
      value: (row) => (exact ? exact.values[row]! : numeric.includes(n) ? numberOf(text(row)) : visible(text(row))),
      cell: (row) => {
        if (about.exported || !/^#\d+$/.test(text(row))) return <bdi>{visible(text(row))}</bdi>;
        return <a href={writeLink("tokens", { token: text(row) }, {})}>{text(row)}</a>;
      },
    };
  });
}

function TextTable({ table, about }: { table: TableOfText; about: About }) {
  const caption = visible(table.caption);
  const columns = columnsOf(table, about);
  const rows = table.rows.map((_, row) => row);
  const save = () =>
    saveCsv(
      fileOf(caption),
      columns.map(({ title }) => title),
      rows.map((row) => columns.map((column) => column.value(row))),
    );
  const shown = (
    <div>
      <Table caption={caption} columns={columns} rows={rows} />
      <div class="tools">
        <button type="button" aria-label={`Save ${caption} as CSV`} onClick={save}>
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

function BarsFigure({ chart, name, about }: { chart: Chart; name: string; about: About }) {
  const { table, title, series } = chart;
  const [drawn] = series as [Series];
  const most = chart.x[1]!;
  const written = table.columns.indexOf(drawn.name);
  const bars = table.rows.map((row, n) => ({
    name: visible(row[0]!),
    share: (drawn.values[n] ?? 0) / (most || 1),
    color: "c1",
    text: row[written]!,
  }));
  return (
    <Figure
      title={title}
      note={visible(chart.note)}
      file={`${name}-${fileOf(title)}`}
      svg={() => barsSvg(title, bars)}
      rows={table.rows.map((_, row) => row)}
      columns={columnsOf(table, about, series)}
      how={<p>{visible(chart.method)}</p>}
    >
      <Bars bars={bars} />
    </Figure>
  );
}

function ChartFigure({ chart, name }: { chart: Chart; name: string }) {
  const histogram = chart.kind === "histogram";
  const props: LinesProps = useMemo(
    () => ({
      title: chart.title,
      x: chart.x,
      curves: chart.series.map(({ name, values, look: number }, n) => ({
        name,
        values: histogram ? [...values, 0] : values, // the last edge has no bin: the step goes down to 0
        ...(number === null ? { color: COLORS[n % COLORS.length]! } : look(number)),
      })),
      xLabel: chart.x_label,
      yLabel: chart.y_label,
      logX: chart.log_x,
      steps: histogram,
      dots: !histogram && chart.x.length <= FEW,
      marks: chart.marks.map(([x, text]) => ({ x, text })),
      height: 220,
    }),
    [chart],
  );
  const columns = [
    ...(histogram
      ? [numberColumn("from", (k: number) => chart.x[k]), numberColumn("to", (k: number) => chart.x[k + 1])]
      : [numberColumn(chart.x_label, (k: number) => chart.x[k])]),
    ...chart.series.map(({ name, values }) => {
      return numberColumn(
        chart.series.length > 1 ? `${name}, ${chart.y_label}` : chart.y_label,
        (k: number) => values[k],
      );
    }),
  ];
  return (
    <LineFigure
      lines={props}
      note={visible(chart.note)}
      file={`${name}-${fileOf(chart.title)}`}
      table={{ rows: chart.x.slice(0, histogram ? -1 : undefined).map((_, k) => k), columns }}
      how={<p>{visible(chart.method)}</p>}
    />
  );
}

function fileOf(title: string): string {
  return title.replace(/[^a-z]+/gi, "-").toLowerCase();
}

/** Return a number that is written for readers, to sort by; or the text that replaces it. */
function numberOf(cell: string): Cell {
  const number = Number(cell.replace(/,|\u00A0?%$/g, "").replaceAll("−", "-"));
  return cell === "" ? null : Number.isFinite(number) ? number : visible(cell);
}
