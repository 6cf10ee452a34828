/** The tokens that are filtered or inside the rectangle, as a table. */

import { fixed, formatNumber, whole } from "../../numbers";
import { saveCsv } from "../../parts/save";
import { type Column, Table } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import type { Names } from "./labels";

interface Props {
  /** Points, and the ids that they are of. */
  rows: number[];
  /** Where they are, or what they match. */
  what: string;
  columns: Column<number>[];
  clear(): void;
}

export function Selected({ rows, what, columns, clear }: Props) {
  const header = columns.map((column) => column.title);
  const cells = () => rows.map((row) => columns.map((column) => column.value(row)));
  return (
    <section aria-label="Selected tokens">
      <h2>
        {rows.length === 1 ? "1 token" : `${whole(rows.length)} tokens`} {what}
      </h2>
      <div class="tools">
        <button
          type="button"
          onClick={() => saveCsv("selected", header, cells())}
          aria-label="Save the selected tokens as CSV"
        >
          CSV
        </button>
        <button type="button" onClick={clear}>
          Clear
        </button>
      </div>
      {rows.length > 0 && <Table caption="Selected tokens" columns={columns} rows={rows} />}
    </section>
  );
}

export function pointColumns(
  ids: ArrayLike<number>,
  x: ArrayLike<number>,
  y: ArrayLike<number>,
  names: Names,
  link: (id: number) => string,
): Column<number>[] {
  return [
    {
      title: "token",
      value: (point) => names.shown(ids[point]!),
      cell: (point) => (
        <TokenLabel word={names.word(ids[point]!)} text={names.text(ids[point]!)} href={link(ids[point]!)} />
      ),
    },
    { title: "id", numeric: true, value: (point) => ids[point]! },
    { title: "type", value: (point) => names.kind(ids[point]!) },
    { title: "script", value: (point) => names.script(ids[point]!) },
    {
      title: "norm",
      numeric: true,
      value: (point) => names.norm(ids[point]!),
      cell: (point) => formatNumber(names.norm(ids[point]!)),
    },
    { title: "x", numeric: true, value: (point) => x[point]!, cell: (point) => fixed(x[point]!, 4) },
    { title: "y", numeric: true, value: (point) => y[point]!, cell: (point) => fixed(y[point]!, 4) },
  ];
}
