/** Curves as SVG: the same drawing on the page, in a file and on paper. */

import { cssColor, cssSeries } from "../colors";
import { formatNumber } from "../numbers";
import {
  type Axis,
  axis,
  counting,
  drawing,
  type Frame,
  haloed,
  label,
  line,
  n,
  textWidth,
  tickRoom,
  UNDER,
  xAxisSvg,
  yAxisSvg,
  yTicks,
} from "./svg";

export interface Curve {
  name: string;
  values: ArrayLike<number | null>;
  /** Which color of the page, 0 to 7; without, the curve's index. */
  color?: number;
  /** Strokes and gaps; without, the line is whole. */
  dash?: string;
  /** Which shape marks the values, 0 to 7; without, the curve's index. */
  marker?: number;
  low?: ArrayLike<number | null>;
  high?: ArrayLike<number | null>;
  /** A thin line to compare the others with, named at its right end. */
  baseline?: boolean;
}

interface Level {
  y: number;
  text: string;
}

export interface LinesProps {
  title: string;
  x: ArrayLike<number>;
  curves: Curve[];
  xLabel: string;
  yLabel: string;
  /** What is hidden, where figures share it; of those that share a legend, all but the first are `bare` of it. */
  hidden?: [Set<string>, (now: Set<string>) => void];
  bare?: boolean;
  logX?: boolean;
  /** A logarithmic axis cannot show values of 0 or less: pass null for them. */
  logY?: boolean;
  /** Whether it is a histogram: x are the edges, and each value holds from its x to the next. */
  steps?: boolean;
  marks?: { x: number; text: string }[];
  /** Points on the y axis, with a label or without one. */
  levels?: Level[];
  /** The ends of the y axis; without, what is there decides. */
  y?: [number, number];
  /** Whether the values are marked, where there are few. */
  dots?: boolean;
  height?: number;
}

export interface Plot {
  width: number;
  height: number;
  frame: Frame;
  across: Axis;
  up: Axis;
}

const STROKES = [undefined, "8 4", "2 3", "8 3 2 3", "14 4", "5 2", "2 6", "12 3 3 3 3 3"];

/** Paths of about seven pixels around a point. */
const MARKERS = [
  "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
  "m-2.7-2.7h5.4v5.4h-5.4z",
  "m0-3.6l3.4 6h-6.8z",
  "m0-3.8l3.4 3.8l-3.4 3.8l-3.4-3.8z",
  "m0 3.6l3.4-6h-6.8z",
  "m-3.4-1.2h2.2v-2.2h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2z",
  "m-3.2-2l1.2-1.2l2 2l2-2l1.2 1.2l-2 2l2 2l-1.2 1.2l-2-2l-2 2l-1.2-1.2l2-2z",
  "m0-3.8l1 2.6h2.8l-2.2 1.8l.8 2.8l-2.4-1.7l-2.4 1.7l.8-2.8l-2.2-1.8h2.8z",
];

/** Below this width there is no room for names beside the lines. */
const NAMES_BESIDE = 560;

/** Return the strokes and the marker of one of some curves: eight that differ without their color. */
export function strokeOf(curve: number): { dash?: string; marker: number } {
  const dash = STROKES[curve % STROKES.length];
  return { ...(dash ? { dash } : {}), marker: curve % MARKERS.length };
}

/** Return the color, strokes and marker of a look, such as that of a scheme; with many, the pairs of them differ. */
export function look(number: number): { color: number; dash?: string; marker: number } {
  return { color: 1 + (number % 7), ...strokeOf(number + Math.floor(number / 7)) };
}

export function colorOf(curve: Curve, index: number): string {
  return cssSeries(curve.color ?? index);
}

export function finite(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

export function cropped(props: LinesProps, [from, to]: [number, number]): LinesProps {
  const x = Array.from(props.x).slice(from, to + 1);
  const part = (values: ArrayLike<number | null>) => Array.from(values).slice(from, to + 1);
  const curves = props.curves.map(({ values, low, high, ...curve }): Curve => ({
    ...curve,
    values: part(values),
    ...(low ? { low: part(low) } : {}),
    ...(high ? { high: part(high) } : {}),
  }));
  return { ...props, x, curves, marks: (props.marks ?? []).filter((mark) => mark.x >= x[0]! && mark.x <= x.at(-1)!) };
}

/** Return where the y axis ends: a little beyond all numbers. */
function yEnds({ y, curves, levels = [], logY = false, steps = false }: LinesProps): [number, number] {
  if (y) return y;
  let [low, high] = steps && !logY ? [0, -Infinity] : [Infinity, -Infinity];
  const take = (value: number | null | undefined) => {
    if (!finite(value) || (logY && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const { values, low: least, high: most } of curves)
    for (const part of [values, least, most]) for (let p = 0; part && p < part.length; p++) take(part[p]);
  levels.forEach((level) => take(level.y));
  if (low > high) return logY ? [1, 10] : [0, 1];
  if (logY) return high > 1.2 * low ? [low / 1.3, high * 1.3] : [low / 10, high * 10];
  if (low === high) return low === 0 ? [-1, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  const room = (high - low) * 0.05;
  return [steps && low === 0 ? 0 : low - room, high + room];
}

/** Below the greatest bias of a head by so much, a weight is less than 1 in 20,000 of the greatest. */
const DEEP = 10;

/** Return the ends of a y axis for biases of which some are very low: the others would all seem to be 0. */
export function readableBiases(curves: Curve[]): Pick<LinesProps, "y"> {
  const known = curves.map(({ values }) => Array.from(values).filter(finite)).filter((values) => values.length);
  const ends = (values: number[]): [number, number] => {
    let [least, most] = [Infinity, -Infinity];
    for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
    return [least, most];
  };
  const low = Math.min(...known.map((values) => ends(values)[0]));
  const greatest = known.map((values) => ends(values)[1]); // a constant added to a head changes no weight
  const [bottom, top] = [Math.min(...greatest) - DEEP, Math.max(...greatest)];
  return low < bottom - DEEP ? { y: [bottom, top + DEEP / 20] } : {};
}

export const DEEP_BIASES = `The axis ends ${DEEP} below the greatest bias: weights beyond are less than 1 in 20,000 of the greatest.`;

function lastKnown(values: ArrayLike<number | null>, count: number): number {
  let last = count - 1;
  while (last >= 0 && !finite(values[last])) last--;
  return last;
}

export function plotOf(props: LinesProps, width: number, height: number): Plot {
  const { x, curves, logX = false, logY = false, marks = [] } = props;
  const [low, high] = yEnds(props);
  const top = 10 + (marks.length ? 4 + 16 * (1 + Math.max(...rowsOfMarks(props, width))) : 0);
  const tall = Math.max(height - top - UNDER, 40);
  const up = axis(low, high, top + tall, top, logY);
  const left = tickRoom(yTicks(up, tall), props.yLabel, tall);
  const beside = curves.filter(({ baseline }) => baseline && width >= NAMES_BESIDE);
  const right = Math.max(16, ...beside.map(({ name }) => textWidth(name) + 10));
  const frame: Frame = { left, top, width: Math.max(width - left - right, 40), height: tall };
  const [first, last] = [x[0] ?? 0, x[x.length - 1] ?? 1];
  const across = axis(first, first === last ? last + 1 : last, left, left + frame.width, logX);
  const counts = !logX && Array.from(x).every(Number.isInteger);
  return { width, height, frame, up, across: counts ? counting(across) : across };
}

/** Return on which line above the frame each mark is named: no two names overlap. */
function rowsOfMarks({ marks = [], x, logX = false }: LinesProps, width: number): number[] {
  const across = axis(x[0] ?? 0, x[x.length - 1] ?? 1, 50, width - 16, logX);
  const ends: number[] = [];
  const rows = new Array<number>(marks.length).fill(0);
  const order = marks.map((_, k) => k).sort((a, b) => marks[a]!.x - marks[b]!.x);
  for (const k of order) {
    const half = textWidth(marks[k]!.text) / 2 + 6;
    const row = ends.findIndex((end) => end <= across(marks[k]!.x) - half);
    rows[k] = row < 0 ? ends.length : row;
    ends[rows[k]!] = across(marks[k]!.x) + half;
  }
  return rows;
}

/** Draw the curves, without a legend; those that are not hidden, one of them before the others if it has the focus. */
export function plotSvg(props: LinesProps, plot: Plot, hidden = new Set<string>(), focus = -1): string {
  const { frame, across, up } = plot;
  const { left, top, width, height } = frame;
  const shown = props.curves.map((curve, k) => ({ curve, k })).filter(({ curve }) => !hidden.has(curve.name));
  const groups = shown.map(({ curve, k }) => {
    const faint = focus >= 0 && focus !== k;
    const band = bandSvg(curve, k, props.x, plot, focus < 0 ? 0.1 : faint ? 0.03 : 0.25);
    return `<g class="series"${faint ? ' opacity="0.45"' : ""}>${band}${curveSvg(curve, k, props, plot)}</g>`;
  });
  const box = `${n(left - 4)} ${n(top - 4)} ${n(width + 8)} ${n(height + 8)}`;
  const [x, y, wide, tall] = box.split(" ");
  return [
    yAxisSvg(frame, up, props.yLabel),
    // An inner drawing cuts off what is outside of it.
    `<svg x="${x}" y="${y}" width="${wide}" height="${tall}" viewBox="${box}">${groups.join("")}${endsSvg(shown, props, plot)}</svg>`,
    xAxisSvg(frame, across, props.xLabel),
    namesSvg(shown, props.x, plot),
    levelsSvg(props, plot),
    marksSvg(props, plot),
  ].join("");
}

function dashed({ dash }: Curve): string {
  return dash ? ` stroke-dasharray="${dash}"` : "";
}

/** Draw a ring around the end of each curve that ends before the others, which may hide it. */
function endsSvg(shown: { curve: Curve; k: number }[], { x, dots = false }: LinesProps, { across, up }: Plot): string {
  return shown
    .map(({ curve, k }) => {
      const last = lastKnown(curve.values, x.length);
      if (!dots || curve.baseline || last < 0 || last === x.length - 1) return "";
      const [px, py] = [n(across(x[last]!)), n(up(curve.values[last]!))];
      return `<circle cx="${px}" cy="${py}" r="6.5" fill="none" stroke="${colorOf(curve, k)}" stroke-width="1.5"/>`;
    })
    .join("");
}

function curveSvg(
  curve: Curve,
  k: number,
  { x, steps = false, curves, dots }: LinesProps,
  { frame, across, up }: Plot,
): string {
  const color = colorOf(curve, k);
  let path = "";
  let marks = "";
  let begins = true;
  for (let p = 0; p < x.length; p++) {
    const value = steps && p >= curve.values.length ? 0 : curve.values[p]; // the last edge has no bin
    if (!finite(value) || !Number.isFinite(up(value))) {
      begins = true;
      continue;
    }
    const [px, py] = [n(across(x[p]!)), n(up(value))];
    path += begins ? `M${px} ${py}` : steps ? `H${px}V${py}` : `L${px} ${py}`;
    if (dots && !curve.baseline) marks += `M${px} ${py}${MARKERS[(curve.marker ?? k) % MARKERS.length]!}`;
    begins = false;
  }
  const bottom = n(frame.top + frame.height);
  const filled = steps && curves.length === 1 && path !== "" && !path.includes("M", 1);
  const area = filled
    ? `<path d="${path}V${bottom}H${path.slice(1).split(" ")[0]}Z" fill="${color}" fill-opacity="0.25"/>`
    : "";
  const width = curve.baseline ? 1.5 : 2;
  const drawn = `<path class="line" d="${path}" fill="none" stroke="${color}" stroke-width="${width}" stroke-linejoin="round"${curves.length > 1 ? dashed(curve) : ""}/>`;
  return area + drawn + (marks ? `<path d="${marks}" fill="${color}"/>` : "");
}

/** Draw a band, pale and with a thin edge: where several overlap, each can still be seen. */
function bandSvg(curve: Curve, k: number, x: ArrayLike<number>, { across, up }: Plot, opacity: number): string {
  const paths = contiguousRuns(curve).map((run) => {
    const edge = (values: ArrayLike<number | null>, order: number[]) =>
      order.map((p) => `${n(across(x[p]!))} ${n(up(values[p]!))}`);
    return `M${[...edge(curve.high!, run), ...edge(curve.low!, [...run].reverse())].join("L")}Z`;
  });
  if (!paths.length) return "";
  const color = colorOf(curve, k);
  return `<path class="band" d="${paths.join("")}" fill="${color}" fill-opacity="${opacity}" stroke="${color}" stroke-opacity="${2.5 * opacity}" stroke-width="0.75"/>`;
}

function contiguousRuns({ low, high }: Curve): number[][] {
  const runs: number[][] = [];
  let before = -2;
  for (let k = 0; low && high && k < low.length; k++) {
    if (!finite(low[k]) || !finite(high[k])) continue;
    if (before === k - 1) runs.at(-1)!.push(k);
    else runs.push([k]);
    before = k;
  }
  return runs;
}

/** Name the baselines at their right ends, one below the other where they are close. */
function namesSvg(shown: { curve: Curve }[], x: ArrayLike<number>, { width, frame, up }: Plot): string {
  if (width < NAMES_BESIDE) return "";
  const ends = shown.flatMap(({ curve: { baseline, name, values } }) => {
    const value = values[x.length - 1];
    return baseline && finite(value) ? [{ name, y: up(value) + 4 }] : [];
  });
  ends.sort((a, b) => a.y - b.y);
  for (let k = 1; k < ends.length; k++) ends[k]!.y = Math.max(ends[k]!.y, ends[k - 1]!.y + 13);
  return ends.map(({ name, y }) => label(frame.left + frame.width + 6, y, name, "start", cssColor("muted"))).join("");
}

/** Draw levels, each named where no curve and no other name is, if there is such a place. */
function levelsSvg(props: LinesProps, plot: Plot): string {
  const { frame, up } = plot;
  const right = frame.left + frame.width;
  const taken: [number, number][] = [];
  return (props.levels ?? [])
    .map(({ y, text }) => {
      const at = up(y);
      const rule = line(frame.left, at, right, at, cssColor(text ? "bad" : "muted"));
      if (!text) return rule;
      const wide = textWidth(text);
      const [above, below] = [at - 4, at + 13];
      const lines = above - 10 > frame.top ? [above, below] : [below];
      const places = lines.flatMap((base): [number, number][] => [
        [frame.left + 6, base],
        [Math.max(right - wide - 6, frame.left + 6), base],
      ]);
      const apart = ([x, base]: [number, number]) =>
        taken.every(([other, line]) => Math.abs(line - base) >= 13 || Math.abs(other - x) >= wide);
      const clear = (place: [number, number]) => apart(place) && !crossed(props, plot, place, wide);
      const place = places.find(clear) ?? places.find(apart) ?? places[0]!;
      taken.push(place);
      return rule + haloed(place[0], place[1], text, "start");
    })
    .join("");
}

function crossed(
  { curves, x }: LinesProps,
  { across, up }: Plot,
  [left, base]: [number, number],
  wide: number,
): boolean {
  const inside = (px: number, py: number) => px > left - 5 && px < left + wide + 5 && py > base - 14 && py < base + 6;
  return curves.some(({ values }) => {
    for (let p = 1; p < x.length; p++) {
      const [one, other] = [values[p - 1], values[p]];
      if (!finite(one) || !finite(other)) continue;
      const [x1, y1, x2, y2] = [across(x[p - 1]!), up(one), across(x[p]!), up(other)];
      const steps = Math.max(1, Math.ceil(Math.hypot(x2 - x1, y2 - y1) / 4));
      for (let s = 0; s <= steps; s++)
        if (inside(x1 + ((x2 - x1) * s) / steps, y1 + ((y2 - y1) * s) / steps)) return true;
    }
    return false;
  });
}

function marksSvg(props: LinesProps, { width, frame, across }: Plot): string {
  const rows = rowsOfMarks(props, width);
  return (props.marks ?? [])
    .map((mark, k) => {
      const at = across(mark.x);
      const beyond = at > frame.left + frame.width + 1;
      const half = textWidth(beyond ? `${mark.text} →` : mark.text) / 2;
      const middle = Math.min(Math.max(at, frame.left + half), Math.max(width - half - 4, half));
      const y = frame.top - 9 - 16 * rows[k]!;
      if (beyond) return label(middle, y, `${mark.text} →`, "middle");
      return (
        line(at, y + 3, at, frame.top + frame.height, cssColor("bad"), 1.5) + label(middle, y, mark.text, "middle")
      );
    })
    .join("");
}

/** Return the name of a curve for a legend: with what cannot be seen of it, where values are marked. */
export function legendName({ name, values, baseline }: Curve, { x, dots, logY }: LinesProps): string {
  if (!dots || baseline) return name;
  const last = lastKnown(values, x.length);
  if (last < 0) return `${name} (${logY ? "all 0" : "no values"})`;
  return last < x.length - 1 ? `${name} (ends at ${formatNumber(x[last])})` : name;
}

export function swatchSvg(curve: Curve, k: number, dots: boolean, x = 0, y = 8): string {
  const color = colorOf(curve, k);
  const marker =
    dots && !curve.baseline
      ? `<path d="M${n(x + 13)} ${n(y)}${MARKERS[(curve.marker ?? k) % MARKERS.length]!}" fill="${color}"/>`
      : "";
  return `<line x1="${n(x)}" y1="${n(y)}" x2="${n(x + 26)}" y2="${n(y)}" stroke="${color}" stroke-width="2"${dashed(curve)}/>${marker}`;
}

export function linesSvg(props: LinesProps, width = 720): string {
  const plot = plotOf(props, width, Math.round(Math.min(Math.max(0.52 * width, 224), 460)));
  const parts = [plotSvg(props, plot)];
  let [x, y] = [8, plot.height + 14];
  if (props.curves.length > 1)
    props.curves.forEach((curve, k) => {
      const name = legendName(curve, props);
      const room = 32 + textWidth(name);
      if (x > 8 && x + room > width) [x, y] = [8, y + 18];
      parts.push(swatchSvg(curve, k, props.dots ?? false, x, y - 4), label(x + 32, y, name));
      x += room + 14;
    });
  return drawing(width, props.curves.length > 1 ? y + 10 : plot.height + 4, props.title, parts);
}

export function summary({ x, curves, xLabel, yLabel, marks = [], levels = [] }: LinesProps): string {
  const range = x.length ? `${xLabel} from ${formatNumber(x[0])} to ${formatNumber(x[x.length - 1])}; ${yLabel}. ` : "";
  const each = curves.map(({ name, values }) => {
    const known = Array.from(values, (value, k) => ({ value, k })).filter((point) => finite(point.value)) as {
      value: number;
      k: number;
    }[];
    if (!known.length) return `${name}: no values.`;
    const high = known.reduce((best, point) => (point.value > best.value ? point : best));
    const low = known.reduce((best, point) => (point.value < best.value ? point : best));
    return `${name}: greatest ${formatNumber(high.value)} at ${formatNumber(x[high.k])}, least ${formatNumber(low.value)} at ${formatNumber(x[low.k])}.`;
  });
  const labeled = [
    ...marks.map((mark) => ({ text: mark.text, at: mark.x })),
    ...levels.filter(({ text }) => text).map(({ text, y }) => ({ text, at: y })),
  ];
  return range + each.join(" ") + labeled.map(({ text, at }) => ` ${text}: ${formatNumber(at)}.`).join("");
}
