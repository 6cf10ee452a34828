/** Files to download: SVG as it is, PNG rendered from it, CSV from a table. */

export type Cell = string | number | null;

export function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function saveSvg(name: string, svg: string): void {
  save(`${name}.svg`, new Blob([svg], { type: "image/svg+xml" }));
}

/** Draw an SVG at twice its size, which print and projectors need. */
export async function savePng(name: string, svg: string, scale = 2): Promise<void> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth * scale;
  canvas.height = image.naturalHeight * scale;
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (blob === null) throw new Error("the browser made no PNG of this size");
  save(`${name}.png`, blob);
}

/** Write a table as CSV (RFC 4180) in UTF-8; a text that a spreadsheet would run as a formula is escaped. */
export function csv(header: string[], rows: Cell[][]): string {
  return [header, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}

export function saveCsv(name: string, header: string[], rows: Cell[][]): void {
  save(`${name}.csv`, new Blob(["\uFEFF", csv(header, rows)], { type: "text/csv;charset=utf-8" }));
}

function quoted(cell: Cell): string {
  if (cell === null) return "";
  if (typeof cell === "number") return String(cell);
  const safe = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
