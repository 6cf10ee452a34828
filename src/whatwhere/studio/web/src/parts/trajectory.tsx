/** A path through a plane: points in their order, joined, colored from first to last; read by mouse or arrow keys. */

import { useMemo, useState } from "preact/hooks";
import { colorTable, cssColor } from "../colors";
import { useWidth } from "../hooks";
import { formatNumber } from "../numbers";
import { announce } from "./states";
import { type Axis, axis, circle, drawing, type Frame, haloed, line, textWidth, xAxisSvg, yAxisSvg } from "./svg";

export interface PathProps {
  title: string;
  x: number[];
  y: number[];
  name(point: number): string;
  xLabel: string;
  yLabel: string;
}

const HEIGHT = 420;

export function Path(props: PathProps) {
  const { title, x, y, name } = props;
  const [holder, measured] = useWidth<HTMLDivElement>();
  const width = Math.max(measured, 200);
  const [chosen, setAt] = useState(0);
  const at = Math.min(chosen, x.length - 1);
  const plane = useMemo(() => fitted(props, width, HEIGHT), [props, width]);
  const drawn = useMemo(() => pathParts(props, plane, width), [plane]);
  const words = (point: number) => `${name(point)}: ${formatNumber(x[point])}, ${formatNumber(y[point])}`;
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = Math.min(Math.max(at + by, 0), x.length - 1);
    setAt(next);
    announce(words(next));
  };
  const point = (event: PointerEvent) => {
    const area = holder.current!.getBoundingClientRect();
    const [px, py] = [event.clientX - area.left, event.clientY - area.top];
    const away = (k: number) => (plane.across(x[k]!) - px) ** 2 + (plane.up(y[k]!) - py) ** 2;
    setAt(x.reduce((best, _, k) => (away(k) < away(best) ? k : best), 0));
  };
  const cursor = at < 0 ? "" : circle(plane.across(x[at]!), plane.up(y[at]!), 6, "none", cssColor("ink"));
  return (
    <div>
      <div
        class="chart"
        role="application"
        aria-roledescription="path"
        aria-label={`${title}. ${x.length} points, joined in their order. Arrow keys walk along the path.`}
        tabIndex={0}
        ref={holder}
        onKeyDown={keys}
        onPointerMove={point}
      >
        <svg viewBox={`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
          <g dangerouslySetInnerHTML={{ __html: drawn }} />
          <g dangerouslySetInnerHTML={{ __html: cursor }} />
        </svg>
      </div>
      <p class="under">
        <span>{at >= 0 && words(at)}</span>
        <span>dark first, light last</span>
      </p>
    </div>
  );
}

interface Plane {
  frame: Frame;
  across: Axis;
  up: Axis;
}

/** Return a plane whose axes share one scale, so that a circle is round. */
function fitted({ x, y }: PathProps, width: number, height: number): Plane {
  const frame: Frame = { left: 64, top: 12, width: Math.max(width - 80, 40), height: height - 56 };
  const ends = (values: number[]) => (values.length ? [Math.min(...values), Math.max(...values)] : [0, 1]);
  const [[left, right], [low, high]] = [ends(x), ends(y)] as [[number, number], [number, number]];
  const unit = Math.max((right - left) / frame.width, (high - low) / frame.height) || 1;
  const [halfX, halfY] = [(1.06 * unit * frame.width) / 2, (1.06 * unit * frame.height) / 2];
  const [midX, midY] = [(left + right) / 2, (low + high) / 2];
  return {
    frame,
    across: axis(midX - halfX, midX + halfX, frame.left, frame.left + frame.width),
    up: axis(midY - halfY, midY + halfY, frame.top + frame.height, frame.top),
  };
}

function pathParts({ x, y, name, xLabel, yLabel }: PathProps, { frame, across, up }: Plane, width: number): string {
  const table = colorTable("amount");
  // The palest end of the map is left out: on white it would not be seen.
  const shade = (k: number) => {
    const at = 4 * Math.round((215 * k) / Math.max(x.length - 1, 1));
    return `rgb(${table[at]},${table[at + 1]},${table[at + 2]})`;
  };
  const parts = [yAxisSvg(frame, up, yLabel), xAxisSvg(frame, across, xLabel)];
  x.forEach((value, k) => {
    if (k > 0) parts.push(line(across(x[k - 1]!), up(y[k - 1]!), across(value), up(y[k]!), shade(k), 2));
    parts.push(circle(across(value), up(y[k]!), x.length > 300 ? 1.5 : 3, shade(k)));
  });
  for (const k of new Set([0, x.length - 1])) {
    if (k < 0) continue;
    const next = k ? k - 1 : Math.min(1, x.length - 1); // the name is on the side that the path does not take
    const [px, py] = [across(x[k]!), up(y[k]!)];
    const below = up(y[next]!) < py && py + 20 < frame.top + frame.height;
    const fits = (anchor: "start" | "end") =>
      anchor === "start" ? px + 8 + textWidth(name(k)) < width : px - 8 - textWidth(name(k)) > frame.left;
    const sides = across(x[next]!) > px ? (["end", "start"] as const) : (["start", "end"] as const);
    const side = sides.find(fits) ?? "start";
    parts.push(haloed(px + (side === "start" ? 8 : -8), py + (below ? 16 : -6), name(k), side));
  }
  return parts.join("");
}

export function pathSvg(props: PathProps): string {
  return drawing(720, 480, props.title, [pathParts(props, fitted(props, 720, 480), 720)]);
}
