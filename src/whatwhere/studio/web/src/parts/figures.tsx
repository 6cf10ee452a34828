/** Figures of the two common kinds: curves with a row of the table for each x, and heat maps with one for each row. */

import type { ComponentChildren } from "preact";
import { formatNumber } from "../numbers";
import { Figure } from "./figure";
import { Heat, heatColumns, type HeatProps, heatSvg } from "./heat";
import { Lines, type LinesProps, linesSvg } from "./lines";
import type { Column } from "./table";

interface Common {
  note?: ComponentChildren;
  /** The name of the files. */
  file: string;
  /** How it was computed: a paragraph or more. */
  how: ComponentChildren;
  /** Python that computes the same. */
  code?: string | null;
  /** Controls above the drawing. */
  children?: ComponentChildren;
}

interface LineFigureProps extends Common {
  lines: LinesProps;
  /** In the place of a row for each x and a column for each curve. */
  table?: { rows: number[]; columns: Column<number>[] };
}

export function LineFigure({ lines, note, file, how, code, table, children }: LineFigureProps) {
  const rows = table?.rows ?? Array.from(lines.x, (_, n) => n);
  const columns = table?.columns ?? [
    { title: lines.xLabel, numeric: true, value: (n: number) => lines.x[n]! },
    ...lines.curves.map(({ name, values }) => numberColumn(name, (n: number) => values[n])),
  ];
  return (
    <Figure
      title={lines.title}
      note={note}
      file={file}
      svg={() => linesSvg(lines)}
      rows={rows}
      columns={columns}
      how={how}
      code={code ?? null}
    >
      {children}
      <Lines {...lines} />
    </Figure>
  );
}

interface HeatFigureProps extends Common {
  heat: HeatProps;
  /** Of the saved files. */
  width?: number;
  /** In the place of a row for each row. */
  table?: { rows: number[]; columns: Column<number>[] };
}

export function HeatFigure({ heat, note, file, how, code, width = 1000, table, children }: HeatFigureProps) {
  const named = heat.rowLabels !== undefined;
  const first: Column<number> = { title: heat.yLabel, value: (row) => (named ? heat.rowName(row) : row) };
  return (
    <Figure
      title={heat.title}
      note={note}
      file={file}
      svg={() => heatSvg(heat, width)}
      rows={table?.rows ?? Array.from({ length: heat.rows }, (_, row) => row)}
      columns={table?.columns ?? [{ ...first, numeric: !named }, ...heatColumns(heat)]}
      how={how}
      code={code ?? null}
    >
      {children}
      <Heat {...heat} />
    </Figure>
  );
}

/** Return a column of numbers; what is not finite is no number in a file. */
export function numberColumn<Row>(
  title: string,
  value: (row: Row) => number | null | undefined,
  written: (value: number | null) => ComponentChildren = formatNumber,
): Column<Row> {
  const known = (row: Row) => {
    const number = value(row) ?? null;
    return number !== null && Number.isFinite(number) ? number : null;
  };
  return { title, numeric: true, value: known, cell: (row) => written(known(row)) };
}
