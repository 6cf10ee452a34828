/** A table that sorts by its columns and draws only the rows that can be seen. */

import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { messageOf, useView } from "../hooks";
import { fixed, formatNumber, whole } from "../numbers";
import { announce } from "./states";
import { type Cell, csv, fileName, printAlone, save, savePng, saveSvg } from "./save";
import { inLight } from "../theme";

export interface Column<Row> {
  title: string;
  /** What the column is sorted by, and what is written to a CSV. */
  value(row: Row): Cell | undefined;
  /** What is shown, if not the value. */
  cell?(row: Row): ComponentChildren;
  numeric?: boolean;
  /** Of numbers; without, they have three digits. */
  decimals?: number;
}

interface Props<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  saved?: boolean;
}

/** With more rows than this, only those in sight are drawn. */
const MOST = 100;
const HEIGHT = 32;
const SPARE = 8;
const SHORT = 16;
/** A number and, behind it in parentheses, its least and its greatest value. */
export const RANGE = /^(−?[\d.,]+(?:\u00A0%)?) (\(.+ to .+\))$/;

export function Table<Row>({ caption, columns, rows, saved = false }: Props<Row>) {
  const [sorted, setSorted] = useState<{ column: number; down: boolean } | null>(null);
  const [top, setTop] = useState(0);
  const scrolled = useRef<HTMLDivElement>(null);
  const past = useRef<HTMLParagraphElement>(null);
  const order = useMemo(() => arranged(rows, columns, sorted), [rows, columns, sorted]);
  const virtual = rows.length > MOST;
  const short = useMemo(
    () => new Set(virtual ? [] : columns.filter((column) => isShort(column, rows))),
    [rows, columns],
  );
  const seen = virtual ? Math.ceil((scrolled.current?.clientHeight ?? 480) / HEIGHT) : rows.length;
  const first = virtual ? Math.max(0, Math.floor(top / HEIGHT) - SPARE) : 0;
  const last = Math.min(rows.length, first + seen + 2 * SPARE);
  const sort = (column: number) => {
    // The first press sorts numbers from the greatest, a second reverses the order, a third restores the original one.
    const usual = isNumeric(columns[column]!);
    const down = sorted?.column === column ? !sorted.down : usual;
    const next = sorted?.column === column && sorted.down !== usual ? null : { column, down };
    setSorted(next);
    announce(
      next ? `sorted by ${columns[column]?.title}, ${down ? "descending" : "ascending"}` : "in the original order",
    );
  };
  const table = (
    <div
      class={virtual ? "scroll tall" : "scroll"}
      role="region"
      aria-label={caption}
      tabIndex={0}
      ref={scrolled}
      onScroll={virtual ? (event) => setTop(event.currentTarget.scrollTop) : undefined}
    >
      <table aria-rowcount={rows.length + 1}>
        <caption>
          <span>{caption}</span>
        </caption>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column, n) => {
              const down = sorted?.column === n ? sorted.down : null;
              const direction = down === null ? "none" : down ? "descending" : "ascending";
              return (
                <th key={column.title} scope="col" aria-sort={direction} class={classOf(column)}>
                  <button type="button" onClick={() => sort(n)}>
                    {column.title}
                    <span aria-hidden="true">{down === null ? " ↕" : down ? " ↓" : " ↑"}</span>
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Spacer rows={first} columns={columns.length} />}
          {order.slice(first, last).map((index, n) => (
            <tr key={index} aria-rowindex={first + n + 2}>
              {columns.map((column) => (
                <td key={column.title} class={short.has(column) ? "short" : classOf(column)}>
                  {column.cell ? column.cell(rows[index]!) : shown(column, rows[index]!)}
                </td>
              ))}
            </tr>
          ))}
          {last < rows.length && <Spacer rows={rows.length - last} columns={columns.length} />}
        </tbody>
      </table>
    </div>
  );
  return (
    <div class={virtual ? "past" : undefined}>
      {saved && <Menu title={caption} columns={columns} rows={rows} />}
      {virtual && (
        <button type="button" class="skip" onClick={() => past.current?.focus()}>
          Past the {whole(rows.length)} rows
        </button>
      )}
      {table}
      {virtual && (
        <p class="note" tabIndex={-1} ref={past}>
          {whole(rows.length)} rows.
        </p>
      )}
    </div>
  );
}

interface MenuProps<Row> extends Omit<Props<Row>, "caption"> {
  title: string;
  svg?(): string;
}

/** What saves a figure or a table: it opens on its kinds of files. */
export function Menu<Row>({ title, columns, rows, svg }: MenuProps<Row>) {
  const menu = useRef<HTMLDetailsElement>(null);
  const file = fileName(title, useView().run);
  const drawn = () => inLight(svg!);
  const png = () =>
    savePng(file, drawn()).then(
      () => announce("PNG saved"),
      (problem: unknown) => announce(messageOf(problem)),
    );
  const numbers = () => {
    const header = columns.map((column) => column.title);
    const cells = rows.map((row) => columns.map((column) => valueOf(column, row)));
    save(`${file}.csv`, new Blob(["\uFEFF", csv(header, cells)], { type: "text/csv;charset=utf-8" }));
  };
  const kinds: [kind: string, words: string, press: () => void][] = [
    ["PNG", `Save ${title} as PNG`, () => void png()],
    ["SVG", `Save ${title} as SVG`, () => saveSvg(file, drawn())],
    ["PDF", `Print ${title}, or save it as PDF`, () => printAlone(file, drawn())],
    ["CSV", `Save ${title} as CSV`, numbers],
  ];
  const leave = ({ relatedTarget }: FocusEvent) => {
    // The menu may be gone, with its view.
    if (menu.current && !menu.current.contains(relatedTarget as Node | null)) menu.current.open = false;
  };
  return (
    <details class="save" ref={menu} onFocusOut={leave}>
      <summary>Save</summary>
      <div tabIndex={-1}>
        {kinds.slice(svg ? 0 : -1).map(([kind, words, press]) => (
          <button key={kind} type="button" aria-label={words} onClick={press}>
            {kind}
          </button>
        ))}
      </div>
    </details>
  );
}

function Spacer({ rows, columns }: { rows: number; columns: number }) {
  return (
    <tr aria-hidden="true" class="spacer">
      <td colSpan={columns} style={{ height: `${rows * HEIGHT}px` }} />
    </tr>
  );
}

function isNumeric({ numeric = false, decimals }: Column<never>): boolean {
  return numeric || decimals !== undefined;
}

function classOf(column: Column<never>): string | undefined {
  return isNumeric(column) ? "number" : undefined;
}

/** Return whether all texts of a column are so short that a narrow screen does not break them; a range has its own line. */
function isShort<Row>(column: Column<Row>, rows: Row[]): boolean {
  const text = (row: Row) => String(valueOf(column, row) ?? "").replace(RANGE, "$1");
  return !isNumeric(column) && rows.every((row) => text(row).length <= SHORT);
}

/** Return the value of a cell; what is not finite is not a number. */
function valueOf<Row>(column: Column<Row>, row: Row): Cell {
  const value = column.value(row) ?? null;
  return typeof value === "number" && !Number.isFinite(value) ? null : value;
}

function shown<Row>(column: Column<Row>, row: Row): Cell {
  const value = valueOf(column, row);
  if (value === null) return isNumeric(column) ? "–" : null;
  if (typeof value === "string") return value;
  return column.decimals === undefined ? formatNumber(value) : fixed(value, column.decimals);
}

function arranged<Row>(
  rows: Row[],
  columns: Column<Row>[],
  sorted: { column: number; down: boolean } | null,
): number[] {
  const order = rows.map((_, n) => n);
  const column = sorted && columns[sorted.column];
  if (!column) return order;
  const values = rows.map((row) => valueOf(column, row));
  const sign = sorted.down ? -1 : 1;
  return order.sort((a, b) => compared(values[a]!, values[b]!, sign) || a - b);
}

/** Compare cells; missing values are last in either direction. */
function compared(one: Cell, other: Cell, sign: number): number {
  if (one === null || other === null) return Number(one === null) - Number(other === null);
  if (typeof one === "number" && typeof other === "number") return sign * (one - other);
  return sign * String(one).localeCompare(String(other));
}
