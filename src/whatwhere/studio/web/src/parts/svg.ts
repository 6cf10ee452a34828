/** SVG as text: for files to download, and to render PNGs from. */

import { cssColor, pageColor } from "../colors";

const FONT = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', Arial, sans-serif";

export function escaped(text: string): string {
  const names: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // XML has no characters for most controls; invisible ones were replaced before this.
  return text
    .replace(/[&<>"]/g, (sign) => names[sign]!)
    .replace(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\uFFFE\uFFFF]/g, "\uFFFD");
}

/** Put parts into a drawing with a heading, on the page's background; colors by name become those of the theme. */
export function drawing(width: number, height: number, heading: string, parts: string[]): string {
  const lines = wrapped(heading, width - 16, 8);
  const top = 10 + 18 * lines.length;
  const title = lines.map(
    (text, n) =>
      `<text x="8" y="${18 * n + 18 - top}" font-size="14" font-weight="600" class="heading">${escaped(text)}</text>`,
  );
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height + top}" ` +
    `viewBox="0 ${-top} ${width} ${height + top}" font-family="${escaped(FONT)}" font-size="12" fill="${pageColor("ink")}">` +
    `<title>${escaped(heading)}</title>` +
    `<rect x="0" y="${-top}" width="${width}" height="${height + top}" fill="${pageColor("page")}"/>` +
    `${title.join("")}${parts.join("")}</svg>`;
  return svg.replace(/"var\(--(\w+)\)"/g, (_, name: string) => `"${pageColor(name)}"`);
}

/** Estimate the width of a text of 12 pixels: an SVG cannot be measured before it is drawn. */
export function textWidth(text: string, wide = 6.8): number {
  return wide * Array.from(text).length;
}

/** Break a text between words into lines of at most so many pixels. */
export function wrapped(text: string, width: number, wide = 6.8): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && textWidth(longer, wide) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

export function line(x1: number, y1: number, x2: number, y2: number, color: string, width = 1): string {
  return `<line x1="${n(x1)}" y1="${n(y1)}" x2="${n(x2)}" y2="${n(y2)}" stroke="${color}" stroke-width="${width}"/>`;
}

export function label(
  x: number,
  y: number,
  text: string,
  anchor: "start" | "middle" | "end" = "start",
  color = "",
): string {
  const fill = color ? ` fill="${color}"` : "";
  return `<text x="${n(x)}" y="${n(y)}" text-anchor="${anchor}"${fill}>${escaped(text)}</text>`;
}

/** Write a text that can be read before curves. */
export function haloed(x: number, y: number, text: string, anchor: "start" | "end"): string {
  const halo = ` stroke="${cssColor("page")}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"`;
  return label(x, y, text, anchor, cssColor("ink")).replace("<text", `<text${halo}`);
}

/** Write a text from bottom to top, its middle or its end at a point. */
export function upright(
  x: number,
  y: number,
  text: string,
  color: string,
  anchor: "middle" | "end" = "middle",
): string {
  return `<text transform="translate(${n(x)} ${n(y)}) rotate(-90)" text-anchor="${anchor}" fill="${color}">${escaped(text)}</text>`;
}

export function circle(x: number, y: number, radius: number, fill: string, stroke = "none"): string {
  return `<circle cx="${n(x)}" cy="${n(y)}" r="${radius}" fill="${fill}" stroke="${stroke}" stroke-width="1.5"/>`;
}

export function box(x: number, y: number, width: number, height: number, fill: string, stroke = "none"): string {
  return `<rect x="${n(x)}" y="${n(y)}" width="${n(Math.max(width, 0))}" height="${n(height)}" fill="${fill}" stroke="${stroke}"/>`;
}

/** Write a number as short as a drawing needs it. */
export function n(value: number): string {
  return String(Math.round(value * 100) / 100);
}
