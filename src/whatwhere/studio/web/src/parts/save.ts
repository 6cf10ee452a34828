/** Files to download: SVG, PNG rendered from it, PDF by printing it, CSV from a table. */

export type Cell = string | number | null;

export function fileName(...titles: string[]): string {
  const words = titles.join(" ").toLowerCase();
  return words.replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "figure";
}

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

export async function savePng(name: string, svg: string): Promise<void> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(image.naturalWidth * 2);
  canvas.height = Math.round(image.naturalHeight * 2);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (blob === null) throw new Error("the browser made no PNG of this size");
  save(`${name}.png`, blob);
}

/** Print an SVG on a page of its own size: the browser's dialog saves it as PDF. */
export function printAlone(name: string, svg: string): void {
  const sheet = document.createElement("div");
  sheet.className = "sheet";
  sheet.innerHTML = svg;
  const { viewBox, width } = sheet.firstElementChild as SVGSVGElement;
  const [wide, tall] = [width.baseVal.value, (width.baseVal.value * viewBox.baseVal.height) / viewBox.baseVal.width];
  const style = new CSSStyleSheet();
  style.replaceSync(`@page { size: ${wide.toFixed(1)}px ${Math.ceil(tall + 1)}px; margin: 0; }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, style];
  document.body.append(sheet);
  const before = document.title;
  document.title = name;
  const done = () => {
    document.title = before;
    sheet.remove();
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== style);
  };
  addEventListener("afterprint", done, { once: true });
  print();
}

/** Write a table as CSV (RFC 4180) in UTF-8; a text that a spreadsheet would run as a formula is escaped. */
export function csv(header: string[], rows: Cell[][]): string {
  return [header, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}

function quoted(cell: Cell): string {
  if (cell === null) return "";
  if (typeof cell === "number") return String(cell);
  const safe = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
