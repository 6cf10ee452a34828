/** SVG as text: for files to download, and to render PNGs from. */

import { ticks } from "d3-array";
import { cssColor, pageColor } from "../colors";
import { formatNumber, MINUS } from "../numbers";

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

/** What is selected by a drag. */
export const SELECTED = "#7db7ff33";

export function box(x: number, y: number, width: number, height: number, fill: string, stroke = "none"): string {
  return `<rect x="${n(x)}" y="${n(y)}" width="${n(Math.max(width, 0))}" height="${n(height)}" fill="${fill}" stroke="${stroke}"/>`;
}

export function n(value: number): string {
  return String(Math.round(value * 100) / 100);
}

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface Axis {
  (value: number): number;
  ticks(count: number): number[];
}

export function axis(low: number, high: number, from: number, to: number, log = false): Axis {
  const shown = log ? Math.log10 : (value: number) => value;
  const [first, last] = [shown(low), shown(high)];
  const at = (value: number) => from + ((shown(value) - first) / (last - first || 1)) * (to - from);
  const some = (count: number): number[] => {
    const found = log ? logTicks(low, high, count) : ticks(low, high, count);
    return found.length < 2 && count < 9 ? some(count + 2) : found; // one number gives no scale
  };
  return Object.assign(at, { ticks: some });
}

/** Return the digits of 1, 2 and 5 and their powers of ten within a range, or every so many powers where it is wide. */
function logTicks(low: number, high: number, count: number): number[] {
  const [first, last] = [Math.floor(Math.log10(low) + 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const powers = Array.from({ length: last - first + 1 }, (_, n) => first + n);
  const inside = (values: number[]) =>
    values.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  const all = inside(powers.flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`))));
  if (all.length < 3) return ticks(low, high, count);
  if (all.length <= 1.5 * count) return all;
  const every = Math.max(1, Math.ceil(powers.length / (1.5 * count)));
  return inside(powers.filter((power) => power % every === 0).map((power) => Number(`1e${power}`)));
}

/** Return an axis of things that are counted: there is nothing between two ticks. */
export function counting(each: Axis): Axis {
  return Object.assign((value: number) => each(value), {
    ticks: (count: number) => each.ticks(count).filter(Number.isInteger),
  });
}

/** Write a number beside an axis: the rule of all numbers, with the digits that tell two ticks apart; powers as 10⁻⁶. */
export function tickText(value: number): string {
  const [digits = "", power] = formatNumber(value, 6).split("e");
  if (power === undefined) return digits;
  const mantissa = digits.replace(/\.?0+$/, "");
  const raised = [...power].map((sign) => SUPERSCRIPTS[sign] ?? sign).join("");
  return `${/^.?1$/.test(mantissa) ? mantissa.slice(0, -1) : `${mantissa} · `}10${raised}`;
}

const SUPERSCRIPTS: Record<string, string> = Object.fromEntries(
  [...`0123456789${MINUS}`].map((sign, n) => [sign, "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"[n] ?? sign]),
);

/** Return the room to the left of an axis so tall that its numbers and its upright title need. */
export function tickRoom(values: number[], title: string, height: number): number {
  const numbers = Math.max(0, ...values.map((value) => textWidth(tickText(value))));
  return Math.ceil(numbers + (title ? 16 + 14 * titleLines(title, height).length : 12));
}

function titleLines(title: string, height: number): string[] {
  return wrapped(title, height + 30);
}

function apart(x: Axis, values: number[]): number[] {
  let last = -Infinity;
  return values.filter((value) => {
    const half = textWidth(tickText(value)) / 2 + 5;
    if (x(value) - half < last) return false;
    last = x(value) + half;
    return true;
  });
}

export function xAxisSvg({ left, top, width, height }: Frame, x: Axis, title: string): string {
  const muted = cssColor("muted");
  const bottom = top + height;
  const parts = [line(left, bottom, left + width, bottom, muted)];
  for (const tick of apart(x, x.ticks(Math.max(2, Math.floor(width / 70)))))
    parts.push(
      line(x(tick), bottom, x(tick), bottom + 4, muted),
      label(x(tick), bottom + 17, tickText(tick), "middle", muted),
    );
  parts.push(label(left + width / 2, bottom + 35, title, "middle", muted));
  return parts.join("");
}

export function yAxisSvg({ left, top, width, height }: Frame, y: Axis, title: string, grid = true): string {
  const muted = cssColor("muted");
  const parts: string[] = [];
  for (const tick of yTicks(y, height)) {
    parts.push(
      grid
        ? line(left, y(tick), left + width, y(tick), cssColor("grid"))
        : line(left - 4, y(tick), left, y(tick), muted),
    );
    parts.push(label(left - 7, y(tick) + 4, tickText(tick), "end", muted));
  }
  titleLines(title, height).forEach((text, n) => parts.push(upright(12 + 14 * n, top + height / 2, text, muted)));
  return parts.join("");
}

export function yTicks(y: Axis, height: number): number[] {
  return y.ticks(Math.max(3, Math.floor(height / 42)));
}

/** The room under a frame that numbers and the title of its x axis need. */
export const UNDER = 42;
