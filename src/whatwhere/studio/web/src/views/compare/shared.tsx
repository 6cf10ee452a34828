/** What the figures of a comparison share: scores that may be missing, tables of text. */

import { Table } from "../../parts/table";
import type { Table as TextTableData } from "../../types";

/** Return a number of an array times a factor, or null for NaN. */
export function known(value: number, factor = 1): number | null {
  return Number.isFinite(value) ? value * factor : null;
}

export function TextTable({ table }: { table: TextTableData }) {
  const { caption, columns, rows } = table;
  const titled = columns.map((title, n) => ({ title, value: (row: string[]) => row[n]! }));
  return <Table caption={caption} rows={rows} columns={titled} />;
}

export function capital(text: string): string {
  return text.replace(/^./, (letter) => letter.toUpperCase());
}
