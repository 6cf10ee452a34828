/** Axes of drawings: scales, ticks at round numbers, and both as SVG. */

import { ticks } from "d3-array";
import { cssColor } from "../colors";
import { formatNumber, MINUS } from "../numbers";
import { label, line, textWidth, upright, wrapped } from "./svg";

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

/** Return the scale from numbers to pixels, linear or logarithmic. */
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
  const every = Math.max(1, Math.ceil(powers.length / count));
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

/** Return ticks of which no two overlap when written side by side. */
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
