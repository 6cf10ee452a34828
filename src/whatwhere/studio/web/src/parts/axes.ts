/** Axes of drawings: scales of d3, and their ticks as SVG. */

import { scaleLinear, scaleLog } from "d3-scale";
import { pageColor } from "../colors";
import { label, line } from "./svg";

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface Axis {
  (value: number): number;
  ticks(count: number): number[];
  format(value: number): string;
}

export function axis(low: number, high: number, from: number, to: number, log = false): Axis {
  const scale = log
    ? scaleLog().domain([low, high]).range([from, to])
    : scaleLinear().domain([low, high]).range([from, to]);
  const format = scale.tickFormat(6);
  return Object.assign((value: number) => scale(value), { ticks: (count: number) => scale.ticks(count), format });
}

export function axesSvg(frame: Frame, x: Axis, y: Axis, xLabel: string, yLabel: string): string {
  const grid = pageColor("grid");
  const muted = pageColor("muted");
  const { left, top, width, height } = frame;
  const parts: string[] = [];
  for (const tick of y.ticks(5)) {
    parts.push(
      line(left, y(tick), left + width, y(tick), grid),
      label(left - 6, y(tick) + 4, y.format(tick), "end", muted),
    );
  }
  for (const tick of x.ticks(Math.max(2, Math.floor(width / 90)))) {
    const text = x.format(tick);
    if (text === "") continue;
    parts.push(
      line(x(tick), top + height, x(tick), top + height + 4, muted),
      label(x(tick), top + height + 18, text, "middle", muted),
    );
  }
  parts.push(line(left, top + height, left + width, top + height, muted));
  parts.push(
    label(left + width, top + height + 34, xLabel, "end", muted),
    label(left - 40, top - 6, yLabel, "start", muted),
  );
  return parts.join("");
}
