/** The frame of every figure: what it shows, the table of the same numbers, files of both, and how it was computed. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useView, useWidth } from "../hooks";
import { upTo } from "../numbers";
import { Heat, type HeatProps, heatSvg } from "./heat";
import { Lines } from "./lines";
import { type LinesProps, linesSvg } from "./plot";
import { drawing } from "./svg";
import { type Column, Menu, Table } from "./table";
import { runnable } from "../python";

interface Common {
  title: string;
  /** One sentence: what is to be seen. */
  note?: ComponentChildren;
  how: HowProps["text"];
  code?: HowProps["code"];
  children?: ComponentChildren;
}

interface FigureProps<Row> extends Common {
  svg(): string;
  columns: Column<Row>[];
  rows: Row[];
}

export function Figure<Row>({ title, note, svg, columns, rows, how, code, children }: FigureProps<Row>) {
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    // Its title is one level below what stands above it: a section's title, or the view's.
    const above = document.querySelector("main h2");
    const below = above && above.compareDocumentPosition(heading.current!) & Node.DOCUMENT_POSITION_FOLLOWING;
    const level = below ? 3 : 2;
    heading.current!.ariaLevel = String(level);
    for (const each of heading.current!.closest("figure")!.querySelectorAll("h4")) each.ariaLevel = String(level + 1);
  });
  return (
    <figure class="figure">
      <figcaption>
        <h3 ref={heading}>{title}</h3>
        <Menu title={title} columns={columns} rows={rows} svg={svg} />
        {note && <p>{note}</p>}
      </figcaption>
      {children}
      <How code={code} text={how} table={() => <Table caption={title} columns={columns} rows={rows} />} />
    </figure>
  );
}

interface HowProps {
  /** How something was computed, the formula and its inputs: a paragraph, or a list of them. */
  text: ComponentChildren;
  code?: string | null | undefined;
  /** The numbers of a figure, which are shown above the text. */
  table?(): ComponentChildren;
}

export function How({ text, code, table }: HowProps) {
  const { about, run } = useView();
  const [open, setOpen] = useState(false);
  const lines = code && runnable(code, { ...about, run });
  return (
    <details class="how" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{table ? "The numbers, and how they were computed" : "How was this computed?"}</summary>
      <div>
        {open && table?.()}
        {(Array.isArray(text) ? text : [text]).map((paragraph, n) => paragraph && <p key={n}>{paragraph}</p>)}
        {lines && (
          <pre tabIndex={0}>
            <code>{lines}</code>
          </pre>
        )}
      </div>
    </details>
  );
}

/** In the place of the rows and columns that follow from the drawing. */
type OwnTable<Row> = Partial<Pick<FigureProps<Row>, "rows" | "columns">>;

/** Curves, and a row of the table for each x. */
export function LineFigure<Row = number>(props: LinesProps & Common & OwnTable<Row>) {
  const { x, curves, xLabel, steps = false } = props;
  const first = steps ? ["from", "to"] : [xLabel];
  const columns: Column<number>[] = [
    ...first.map((name, next) => ({ title: name, numeric: true, value: (n: number) => x[n + next] })),
    ...curves.flatMap(({ name, values, low, high }) =>
      Object.entries({ [name]: values, [`${name}, least`]: low, [`${name}, greatest`]: high }).flatMap(([title, of]) =>
        of ? [{ title, numeric: true, value: (n: number) => of[n] }] : [],
      ),
    ),
  ];
  const { children, rows = upTo(steps ? x.length - 1 : x.length) as Row[] } = props;
  return (
    <Figure {...props} svg={() => linesSvg(props)} rows={rows} columns={props.columns ?? (columns as Column<Row>[])}>
      {children}
      <Lines {...props} />
    </Figure>
  );
}

interface HeatFigureProps extends HeatProps, Common {
  /** More columns of a table of cells, each of which has a number for every cell. */
  more?: Column<number>[];
}

/** A heat map, and a row of the table for each row; for each cell, where rows and columns are the same things. */
export function HeatFigure({ more = [], children, ...props }: HeatFigureProps & OwnTable<number>) {
  return (
    <Figure {...tableOf(props, more)} {...props} svg={() => heatSvg(props, props.square ? 640 : 1000)}>
      {children}
      <Heat {...props} />
    </Figure>
  );
}

function tableOf(props: HeatProps, more: Column<number>[]): { rows: number[]; columns: Column<number>[] } {
  const { cells, xLabel, yLabel, labels, numbers, barLabel = "value", square = false } = props;
  const [height = 0, width = 0] = cells.shape;
  const { values } = cells;
  if (!square) {
    const named = labels ? [{ title: yLabel, value: (row: number) => labels[row] }] : [];
    const columns = upTo(width).map((column) => ({
      title: String(column),
      decimals: 4,
      value: (row: number) => values[row * width + column],
    }));
    const number = { title: labels ? "row" : yLabel, numeric: true, value: (row: number) => row };
    return { rows: upTo(height), columns: [number, ...named, ...columns] };
  }
  const at = (title: string, of: (cell: number) => number): Column<number> => ({
    title,
    numeric: !labels,
    value: (cell) => (labels ? `${of(cell)} ${labels[of(cell)]}` : (numbers?.[of(cell)] ?? of(cell))),
  });
  return {
    rows: upTo(height * width).filter((cell) => Number.isFinite(values[cell])),
    columns: [
      at(yLabel, (cell) => Math.floor(cell / width)),
      at(xLabel, (cell) => cell % width),
      ...more,
      { title: barLabel, decimals: 4, value: (cell) => values[cell] },
    ],
  };
}

export interface Sketch {
  height: number;
  parts: string[];
}

interface Props<Row> extends Omit<FigureProps<Row>, "svg"> {
  draw(width: number): Sketch;
  words: string;
}

const WIDE = 760;

export function DrawnFigure<Row>({ draw, words, children, ...figure }: Props<Row>) {
  const [holder, width] = useWidth<HTMLDivElement>();
  const wide = Math.min(width, WIDE);
  const { height, parts } = draw(wide || WIDE);
  const file = () => {
    const sketch = draw(WIDE);
    return drawing(WIDE, sketch.height, figure.title, sketch.parts);
  };
  return (
    <Figure {...figure} svg={file}>
      {children}
      <div ref={holder} class="chart still">
        <svg
          role="img"
          aria-label={words}
          viewBox={`0 0 ${wide || WIDE} ${height}`}
          style={{ maxWidth: `${WIDE}px` }}
          dangerouslySetInnerHTML={{ __html: parts.join("") }}
        />
      </div>
    </Figure>
  );
}
