/** The frame of every figure: what it shows, the table of the same numbers, files of both, and how it was computed. */

import type { ComponentChildren } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
import { messageOf, OpenContext } from "../hooks";
import { runnable } from "../python";
import { inLight } from "../theme";
import { announce } from "./announce";
import { printAlone, saveCsv, savePng, saveSvg } from "./save";
import { type Column, Table } from "./table";

interface Props<Row> {
  title: string;
  /** One sentence: what is to be seen. */
  note?: ComponentChildren;
  /** The name of the files. */
  file: string;
  /** The figure as a file. */
  svg(): string;
  columns: Column<Row>[];
  rows: Row[];
  /** How it was computed: a paragraph or more. */
  how: ComponentChildren;
  /** Python that computes the same. */
  code?: string | null;
  children: ComponentChildren;
}

export function Figure<Row>({ title, note, file, svg, columns, rows, how, code = null, children }: Props<Row>) {
  const [open, setOpen] = useState(false);
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    // Its title is one level below what stands above it: a section's title, or the view's.
    const above = document.querySelector("main h2");
    const below = above && above.compareDocumentPosition(heading.current!) & Node.DOCUMENT_POSITION_FOLLOWING;
    const level = below ? 3 : 2;
    heading.current!.ariaLevel = String(level);
    for (const each of heading.current!.closest("figure")!.querySelectorAll("h4")) each.ariaLevel = String(level + 1);
  });
  const header = columns.map((column) => column.title);
  const cells = () => rows.map((row) => columns.map((column) => column.value(row)));
  const drawn = () => inLight(svg);
  const png = () =>
    savePng(file, drawn()).then(
      () => announce("PNG saved"),
      (problem: unknown) => announce(messageOf(problem)),
    );
  return (
    <figure class="figure">
      <figcaption>
        <h3 ref={heading}>{title}</h3>
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
        <button type="button" aria-label={`Save ${title} as SVG`} onClick={() => saveSvg(file, drawn())}>
          SVG
        </button>
        <button
          type="button"
          aria-label={`Print ${title}, or save it as PDF`}
          onClick={() => printAlone(file, drawn())}
        >
          PDF
        </button>
        <button type="button" aria-label={`Save ${title} as CSV`} onClick={() => saveCsv(file, header, cells())}>
          CSV
        </button>
      </div>
      {open && <Table caption={title} columns={columns} rows={rows} />}
      <How code={code}>{how}</How>
    </figure>
  );
}

/** How something was computed: the formula, its inputs, and Python lines that compute the same numbers. */
export function How({ code, children }: { code?: string | null; children: ComponentChildren }) {
  const open = useContext(OpenContext);
  const lines = code && runnable(code, open);
  return (
    <details class="how">
      <summary>How was this computed?</summary>
      <div>
        {children}
        {lines && (
          <pre tabIndex={0}>
            <code>{lines}</code>
          </pre>
        )}
      </div>
    </details>
  );
}
