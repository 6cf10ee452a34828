/** The frame of every figure: what it shows, the table of the same numbers, files of both, and how it was computed. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { messageOf } from "../hooks";
import { announce } from "./announce";
import { saveCsv, savePng, saveSvg } from "./save";
import { type Column, Table } from "./table";

interface Props<Row> {
  title: string;
  /** One sentence: what is to be seen. */
  note?: ComponentChildren;
  /** The name of the files. */
  file: string;
  svg(): string;
  columns: Column<Row>[];
  rows: Row[];
  how: ComponentChildren;
  children: ComponentChildren;
}

export function Figure<Row>({ title, note, file, svg, columns, rows, how, children }: Props<Row>) {
  const [open, setOpen] = useState(false);
  const header = columns.map((column) => column.title);
  const cells = () => rows.map((row) => columns.map((column) => column.value(row)));
  const png = () =>
    savePng(file, svg()).then(
      () => announce("PNG saved"),
      (problem: unknown) => announce(messageOf(problem)),
    );
  return (
    <figure class="figure">
      <figcaption>
        <h3>{title}</h3>
        {note && <p>{note}</p>}
      </figcaption>
      {children}
      <div class="tools">
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          Table
        </button>
        <button type="button" aria-label={`Save ${title} as PNG`} onClick={() => void png()}>
          PNG
        </button>
        <button type="button" aria-label={`Save ${title} as SVG`} onClick={() => saveSvg(file, svg())}>
          SVG
        </button>
        <button type="button" aria-label={`Save ${title} as CSV`} onClick={() => saveCsv(file, header, cells())}>
          CSV
        </button>
      </div>
      {open && <Table caption={title} columns={columns} rows={rows} />}
      {how}
    </figure>
  );
}
