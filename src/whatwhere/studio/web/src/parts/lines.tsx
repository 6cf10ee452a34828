/** Curves, by uPlot: with a summary in words, a cursor by keyboard, and the same drawing as SVG. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { pageColor, seriesColor } from "../colors";
import { useTheme, useWidth } from "../hooks";
import { told } from "../numbers";
import { announce } from "./announce";
import { axesSvg, axis, type Frame } from "./axes";
import { box, drawing, label, line, n } from "./svg";

export interface Curve {
  name: string;
  values: ArrayLike<number | null>;
  /** Which color of the page, 0 to 7; without, its place. */
  color?: number;
}

export interface LinesProps {
  title: string;
  x: ArrayLike<number>;
  curves: Curve[];
  xLabel: string;
  yLabel: string;
  logX?: boolean;
  /** Whether each value holds from its x to the next, as in a histogram. */
  steps?: boolean;
  /** Places on the x axis with a word. */
  marks?: { x: number; text: string }[];
  height?: number;
}

export function Lines(props: LinesProps) {
  const { title, x, curves, xLabel, yLabel, logX = false, steps = false, marks = [], height = 240 } = props;
  const [holder, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  useEffect(() => {
    if (!holder.current || width < 50) return;
    const shape = steps ? uPlot.paths.stepped!({ align: 1 }) : uPlot.paths.linear!();
    const muted = pageColor("muted");
    const font = "12px system-ui, sans-serif";
    const line = { stroke: muted, grid: { stroke: pageColor("grid"), width: 1 }, ticks: { stroke: muted, width: 1, size: 4 }, font, labelFont: font };
    const options: uPlot.Options = {
      width,
      height,
      padding: [marks.length ? 22 : 8, 16, 0, 0],
      legend: { show: curves.length > 1 },
      scales: { x: { time: false, distr: logX ? 3 : 1 } },
      axes: [
        { ...line, label: xLabel, size: 32, labelSize: 22 },
        { ...line, label: yLabel, size: 56, labelSize: 22 },
      ],
      series: [
        { label: xLabel },
        ...curves.map((curve, k): uPlot.Series => {
          const color = seriesColor(curve.color ?? k);
          const fill = steps && curves.length === 1 ? { fill: `${color}40` } : {};
          return { label: curve.name, stroke: color, width: 2, paths: shape, points: { show: false }, spanGaps: false, ...fill };
        }),
      ],
      hooks: { draw: [(drawn) => drawMarks(drawn, marks)] },
    };
    const data = [Array.from(x), ...curves.map((curve) => Array.from(curve.values))] as uPlot.AlignedData;
    plot.current = new uPlot(options, data, holder.current);
    return () => plot.current?.destroy();
  }, [props.x, props.curves, width, height, theme, logX, steps, JSON.stringify(marks), xLabel, yLabel]);
  const at = useRef(-1);
  const step = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || !plot.current) return;
    event.preventDefault();
    at.current = Math.min(Math.max(at.current + by, 0), x.length - 1);
    const here = x[at.current]!;
    plot.current.setCursor({ left: plot.current.valToPos(here, "x"), top: 0 });
    announce(`${xLabel} ${told(here)}: ${curves.map((curve) => `${curve.name} ${told(curve.values[at.current])}`).join(", ")}`);
  };
  const words = `${title}. ${summary(props)} Arrow keys read the values.`;
  return <div class="chart" role="application" aria-roledescription="line chart" aria-label={words} tabIndex={0} ref={holder} onKeyDown={step} />;
}

/** Say in words what the curves do. */
export function summary({ x, curves, xLabel, yLabel, marks = [] }: LinesProps): string {
  const range = x.length ? `${xLabel} from ${told(x[0])} to ${told(x[x.length - 1])}; ${yLabel}. ` : "";
  const each = curves.map(({ name, values }) => {
    const known = Array.from(values, (value, k) => ({ value, k })).filter((point) => point.value !== null) as { value: number; k: number }[];
    if (!known.length) return `${name}: no values.`;
    const high = known.reduce((best, point) => (point.value > best.value ? point : best));
    const low = known.reduce((best, point) => (point.value < best.value ? point : best));
    return `${name}: greatest ${told(high.value)} at ${told(x[high.k])}, least ${told(low.value)} at ${told(x[low.k])}.`;
  });
  return range + each.join(" ") + marks.map((mark) => ` ${mark.text}: ${told(mark.x)}.`).join("");
}

export function linesSvg(props: LinesProps, width = 720, height = 360): string {
  const { title, x, curves, xLabel, yLabel, logX = false, steps = false, marks = [] } = props;
  const frame: Frame = { left: 56, top: 30, width: width - 72, height: height - 78 };
  const all = curves.flatMap((curve) => Array.from(curve.values).filter((value) => value !== null)) as number[];
  const low = all.reduce((least, value) => Math.min(least, value), steps ? 0 : Infinity);
  const high = all.reduce((most, value) => Math.max(most, value), -Infinity);
  const across = axis(x[0] ?? 0, x[x.length - 1] ?? 1, frame.left, frame.left + frame.width, logX);
  const up = axis(low, high === low ? low + 1 : high, frame.top + frame.height, frame.top);
  const parts = [axesSvg(frame, across, up, xLabel, yLabel)];
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
    parts.push(`<path d="${path.trim()}" fill="none" stroke="${color}" stroke-width="2"/>`);
    if (curves.length > 1) {
      const top = frame.top + 8 + 18 * k;
      parts.push(box(frame.left + frame.width - 150, top - 4, 14, 4, color), label(frame.left + frame.width - 130, top, curve.name));
    }
  });
  for (const mark of marks) {
    const at = across(mark.x);
    parts.push(line(at, frame.top, at, frame.top + frame.height, pageColor("bad"), 2), label(at, frame.top - 4, mark.text, "middle"));
  }
  return drawing(width, height, title, parts);
}

function drawMarks(plot: uPlot, marks: { x: number; text: string }[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
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
