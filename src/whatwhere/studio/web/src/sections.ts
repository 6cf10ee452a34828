/** Reports as Python sends them: the types of report/section.py. */

export interface Paragraph {
  text: string;
}

export interface Table {
  caption: string;
  columns: string[];
  rows: string[][];
  /** The columns that hold numbers, counted from 0. */
  numeric: number[];
  total: number | null;
  bars: number[] | null;
}

export interface Chart {
  kind: "histogram" | "lines";
  title: string;
  x_label: string;
  y_label: string;
  /** A histogram has one more x than values: the edges of its bins. */
  x: number[];
  series: { name: string; values: (number | null)[] }[];
  table: Table;
  note: string;
  /** How the numbers were computed. */
  method: string;
  marks: [number, string][];
}

export interface Section {
  name: string;
  title: string;
  parts: (Paragraph | Table | Chart)[];
}
