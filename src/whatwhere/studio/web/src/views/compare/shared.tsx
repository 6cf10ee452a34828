/** What the figures of a comparison share. */

import { Table } from "../../parts/table";
import type { Table as TextTableData } from "../../types";

export function TextTable({ table: { caption, columns, rows } }: { table: TextTableData }) {
  const titled = columns.map((title, n) => ({ title, value: (row: string[]) => row[n] }));
  return <Table caption={caption} rows={rows} columns={titled} />;
}

export function capital(text: string): string {
  return text.replace(/^./, (letter) => letter.toUpperCase());
}
