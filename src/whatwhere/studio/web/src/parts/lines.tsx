/** Curves, by uPlot: with a summary in words, a cursor by keyboard, and the same drawing as SVG. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { pageColor, seriesColor } from "../colors";
import { useTheme, useWidth } from "../hooks";
import { formatNumber, ranged } from "../numbers";
import { announce } from "./announce";
import { axesSvg, axis, type Frame } from "./axes";
import { drawing, label, line, n } from "./svg";

export interface Curve {
  name: string;
  values: ArrayLike<number | null>;
  /** Which color of the page, 0 to 7; without, the curve's index. */
  color?: number;
  /** Lengths of strokes and gaps; without, the line is whole. */
  dash?: number[];
  /** The ends of a band around the values. */
  low?: ArrayLike<number | null>;
  high?: ArrayLike<number | null>;
}

export interface Level {
  y: number;
  text: string;
}

export interface LinesProps {
  title: string;
  x: ArrayLike<number>;
  curves: Curve[];
  xLabel: string;
  yLabel: string;
  logX?: boolean;
  /** A logarithmic axis cannot show values of 0 or less: pass null for them. */
  logY?: boolean;
  /** Whether each value holds from its x to the next, as in a histogram. */
  steps?: boolean;
  /** Labeled points on the x axis. */
  marks?: { x: number; text: string }[];
  /** Points on the y axis, with a label or without one. */
  levels?: Level[];
  /** The ends of the y axis; without, what is there decides. */
  y?: [number, number];
  /** Whether the values are marked, where there are few. */
  dots?: boolean;
  height?: number;
}

const STROKES: (number[] | undefined)[] = [
  undefined,
  [8, 4],
  [2, 3],
  [8, 3, 2, 3],
  [14, 4],
  [5, 2],
  [2, 6],
  [12, 3, 3, 3, 3, 3],
];

/** Return the strokes of one of some curves: eight that differ without their color. */
export function strokeOf(curve: number): { dash?: number[] } {
  const dash = STROKES[curve % STROKES.length];
  return dash ? { dash } : {};
}

export function Lines(props: LinesProps) {
  const {
    title,
    x,
    curves,
    xLabel,
    yLabel,
    logX = false,
    steps = false,
    logY = false,
    marks = [],
    levels = [],
    y,
    dots = false,
    height = 240,
  } = props;
  const banded = curves.some((curve) => curve.low !== undefined);
  const [holder, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  useEffect(() => {
    if (!holder.current || width < 50) return;
    const shape = steps ? uPlot.paths.stepped!({ align: 1 }) : uPlot.paths.linear!();
    const muted = pageColor("muted");
    const font = "12px system-ui, sans-serif";
    const line = {
      stroke: muted,
      grid: { stroke: pageColor("grid"), width: 1 },
      ticks: { stroke: muted, width: 1, size: 4 },
      font,
      labelFont: font,
    };
    const options: uPlot.Options = {
      width,
      height,
      padding: [marks.length ? 22 : 8, 16, 0, 0],
      legend: { show: curves.length > 1, markers: { dash: (_, k) => (curves[k - 1]?.dash ? "dashed" : "solid") } },
      scales: {
        x: {
          time: false,
          distr: logX ? 3 : 1,
          ...(logX ? { range: (_: uPlot, low: number, high: number): [number, number] => [low, high] } : {}),
        },
        y: {
          distr: logY ? 3 : 1,
          ...(y
            ? { range: y }
            : logY || levels.length || banded
              ? { range: ranged([...levels.map((level) => level.y), ...ends(curves)], logY) }
              : {}),
        },
      },
      axes: [
        {
          ...line,
          label: xLabel,
          size: 32,
          labelSize: 22,
          ...(!logX && Array.from(x).every(Number.isInteger) ? { incrs: WHOLE } : {}),
        },
        {
          ...line,
          label: yLabel,
          size: 56,
          labelSize: 22,
          ...(logY
            ? {
                values: (_: uPlot, splits: (number | null)[]) => splits.map(decade),
                grid: { ...line.grid, filter: decades },
              }
            : {}),
        },
      ],
      series: [
        { label: xLabel },
        ...curves.map((curve, k): uPlot.Series => {
          const color = seriesColor(curve.color ?? k);
          const fill = steps && curves.length === 1 ? { fill: `${color}40` } : {};
          return {
            label: curve.name,
            stroke: color,
            width: 2,
            paths: shape,
            points: { show: dots, size: 6, fill: color },
            spanGaps: false,
            ...fill,
            ...(curve.dash ? { dash: curve.dash } : {}),
          };
        }),
      ],
      hooks: {
        drawAxes: [(chart) => drawBands(chart, x, curves)],
        draw: [(chart) => drawMarks(chart, marks), (chart) => drawLevels(chart, levels)],
      },
    };
    const data = [Array.from(x), ...curves.map((curve) => Array.from(curve.values))] as uPlot.AlignedData;
    plot.current = new uPlot(options, data, holder.current);
    return () => plot.current?.destroy();
  }, [
    props.x,
    props.curves,
    width,
    height,
    theme,
    logX,
    logY,
    steps,
    JSON.stringify([marks, levels, y]),
    xLabel,
    yLabel,
  ]);
  const at = useRef(-1);
  const step = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || !plot.current) return;
    event.preventDefault();
    at.current = Math.min(Math.max(at.current + by, 0), x.length - 1);
    const here = x[at.current]!;
    plot.current.setCursor({ left: plot.current.valToPos(here, "x"), top: 0 });
    announce(
      `${xLabel} ${formatNumber(here)}: ${curves.map((curve) => `${curve.name} ${formatNumber(curve.values[at.current])}`).join(", ")}`,
    );
  };
  const words = `${title}. ${summary(props)} Arrow keys read the values.`;
  return (
    <div
      class="chart"
      role="application"
      aria-roledescription="line chart"
      aria-label={words}
      tabIndex={0}
      ref={holder}
      onKeyDown={step}
    />
  );
}

/** Describe the curves in words. */
export function summary({ x, curves, xLabel, yLabel, marks = [], levels = [] }: LinesProps): string {
  const range = x.length ? `${xLabel} from ${formatNumber(x[0])} to ${formatNumber(x[x.length - 1])}; ${yLabel}. ` : "";
  const each = curves.map(({ name, values }) => {
    const known = Array.from(values, (value, k) => ({ value, k })).filter((point) => point.value !== null) as {
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

export function linesSvg(props: LinesProps, width = 720, height = 360): string {
  const {
    title,
    x,
    curves,
    xLabel,
    yLabel,
    logX = false,
    logY = false,
    steps = false,
    marks = [],
    levels = [],
  } = props;
  const frame: Frame = { left: 56, top: 30, width: width - 72, height: height - 78 };
  const known = curves.flatMap((curve) => Array.from(curve.values).filter((value) => value !== null)) as number[];
  const all = props.y ?? [...known, ...levels.map((level) => level.y), ...ends(curves)];
  const low = all.reduce((least, value) => Math.min(least, value), steps ? 0 : Infinity);
  const high = all.reduce((most, value) => Math.max(most, value), -Infinity);
  const across = axis(x[0] ?? 0, x[x.length - 1] ?? 1, frame.left, frame.left + frame.width, logX);
  const up = axis(low, high === low ? low + 1 : high, frame.top + frame.height, frame.top, logY);
  const parts = [axesSvg(frame, across, up, xLabel, yLabel)];
  curves.forEach((curve, k) => {
    for (const run of contiguousRuns(curve)) {
      const there = [
        ...run.map((p) => [p, curve.high![p]!] as const),
        ...[...run].reverse().map((p) => [p, curve.low![p]!] as const),
      ];
      const path = there.map(([p, value], at) => `${at ? "L" : "M"}${n(across(x[p]!))} ${n(up(value))}`).join("");
      parts.push(`<path d="${path}Z" fill="${seriesColor(curve.color ?? k)}" fill-opacity="0.18"/>`);
    }
  });
  curves.forEach((curve, k) => {
    const color = seriesColor(curve.color ?? k);
    let path = "";
    for (let p = 0; p < x.length; p++) {
      const value = curve.values[p];
      if (value === null || value === undefined) {
        path += " ";
        continue;
      }
      const to = `${n(across(x[p]!))} ${n(up(value))}`;
      const begins = path === "" || path.endsWith(" ");
      path += begins ? `M${to}` : steps ? `H${n(across(x[p]!))}V${n(up(value))}` : `L${to}`;
    }
    parts.push(`<path d="${path.trim()}" fill="none" stroke="${color}" stroke-width="2"${dashed(curve)}/>`);
    if (props.dots) {
      const circles = Array.from(curve.values, (value, p) =>
        value === null ? "" : `<circle cx="${n(across(x[p]!))}" cy="${n(up(value))}" r="3" fill="${color}"/>`,
      );
      parts.push(circles.join(""));
    }
    if (curves.length > 1) {
      const top = frame.top + 8 + 18 * k;
      const left = frame.left + frame.width - 150;
      const key = `<line x1="${n(left)}" y1="${n(top - 4)}" x2="${n(left + 16)}" y2="${n(top - 4)}" stroke="${color}" stroke-width="3"${dashed(curve)}/>`;
      parts.push(key, label(frame.left + frame.width - 130, top, curve.name));
    }
  });
  for (const level of levels) {
    const at = up(level.y);
    parts.push(
      line(frame.left, at, frame.left + frame.width, at, pageColor(level.text ? "bad" : "muted")),
      label(frame.left + 6, at - 4, level.text),
    );
  }
  for (const mark of marks) {
    const at = across(mark.x);
    parts.push(
      line(at, frame.top, at, frame.top + frame.height, pageColor("bad"), 2),
      label(at, frame.top - 4, mark.text, "middle"),
    );
  }
  return drawing(width, height, title, parts);
}

function dashed({ dash }: Curve): string {
  return dash ? ` stroke-dasharray="${dash.join(" ")}"` : "";
}

/** Return the lower and upper ends of all bands. */
function ends(curves: Curve[]): number[] {
  return curves
    .flatMap(({ low, high }) => [...Array.from(low ?? []), ...Array.from(high ?? [])])
    .filter((value) => value !== null);
}

/** Return the contiguous runs of indices where a band is known. */
function contiguousRuns({ low, high }: Curve): number[][] {
  const runs: number[][] = [];
  let before = -2;
  for (let k = 0; low && high && k < low.length; k++) {
    if (low[k] === null || high[k] === null) continue;
    if (before === k - 1) runs.at(-1)!.push(k);
    else runs.push([k]);
    before = k;
  }
  return runs;
}

function drawBands({ ctx, bbox, valToPos }: uPlot, x: ArrayLike<number>, curves: Curve[]): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  curves.forEach((curve, k) => {
    for (const run of contiguousRuns(curve)) {
      ctx.beginPath();
      for (const index of run) ctx.lineTo(valToPos(x[index]!, "x", true), valToPos(curve.high![index]!, "y", true));
      for (const index of [...run].reverse())
        ctx.lineTo(valToPos(x[index]!, "x", true), valToPos(curve.low![index]!, "y", true));
      ctx.closePath();
      ctx.fillStyle = `${seriesColor(curve.color ?? k)}2e`;
      ctx.fill();
    }
  });
  ctx.restore();
}

/** Steps between ticks where x counts something: there is nothing between two. */
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

/** Keep the lines of powers of ten, where there are so many that all would be a gray field. */
function decades(_: uPlot, splits: number[]): (number | null)[] {
  if (splits.length < 30) return splits;
  return splits.map((value) => (Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 ? value : null));
}

function decade(value: number | null): string {
  return value === null ? "" : value >= 1e5 ? value.toExponential(0).replace("+", "") : formatNumber(value, 1);
}

function drawLevels({ ctx, bbox, valToPos }: uPlot, levels: Level[]): void {
  ctx.save();
  ctx.setLineDash([]); // the last curve may have left one
  ctx.textAlign = "left";
  ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
  for (const level of levels) {
    const at = valToPos(level.y, "y", true);
    ctx.strokeStyle = pageColor(level.text ? "bad" : "muted");
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(bbox.left, at);
    ctx.lineTo(bbox.left + bbox.width, at);
    ctx.stroke();
    ctx.fillStyle = pageColor("ink");
    ctx.fillText(level.text, bbox.left + 6 * devicePixelRatio, at - 5 * devicePixelRatio);
  }
  ctx.restore();
}

function drawMarks(plot: uPlot, marks: { x: number; text: string }[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.setLineDash([]);
  ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
  for (const mark of marks) {
    const at = plot.valToPos(mark.x, "x", true);
    ctx.strokeStyle = pageColor("bad");
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillStyle = pageColor("ink");
    const right = at < bbox.left + bbox.width * 0.6;
    ctx.textAlign = right ? "left" : "right";
    ctx.fillText(mark.text, at + (right ? 6 : -6) * devicePixelRatio, bbox.top - 7 * devicePixelRatio);
  }
  ctx.restore();
}
