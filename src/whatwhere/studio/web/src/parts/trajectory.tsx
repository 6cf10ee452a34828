/** A path through a plane: points in their order, joined, colored from first to last; read by mouse or arrow keys. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colorTable, pageColor } from "../colors";
import { useTheme, useWidth } from "../hooks";
import { formatNumber } from "../numbers";
import { announce } from "./announce";
import { type Axis, axis, type Frame, tickText, xAxisSvg, yAxisSvg } from "./axes";
import { drawing, haloed, n, textWidth } from "./svg";

export interface PathProps {
  title: string;
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  /** What a point is, such as "position 3". */
  name(point: number): string;
  xLabel: string;
  yLabel: string;
  height?: number;
}

export function Path(props: PathProps) {
  const { title, x, y, name, height = 420 } = props;
  const [holder, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const [at, setAt] = useState(0);
  const plane = useMemo(() => fitted(props, width || 1, height), [x, y, width, height]);
  useEffect(() => {
    if (width) draw(canvas.current!, props, plane, Math.min(at, x.length - 1));
  }, [plane, at, theme]);
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
    const area = canvas.current!.getBoundingClientRect();
    const [px, py] = [event.clientX - area.left, event.clientY - area.top];
    const away = (k: number) => (plane.across(x[k]!) - px) ** 2 + (plane.up(y[k]!) - py) ** 2;
    let best = 0;
    for (let k = 1; k < x.length; k++) if (away(k) < away(best)) best = k;
    setAt(best);
  };
  const heading = `${title}. ${x.length} points, joined in their order. Arrow keys walk along the path.`;
  return (
    <div>
      <div
        class="chart"
        role="application"
        aria-roledescription="path"
        aria-label={heading}
        tabIndex={0}
        ref={holder}
        onKeyDown={keys}
      >
        <canvas
          ref={canvas}
          width={Math.max(1, Math.round(width * devicePixelRatio))}
          height={Math.round(height * devicePixelRatio)}
          style={{ width: "100%", height: `${height}px`, display: "block" }}
          onPointerMove={point}
        />
      </div>
      <p class="under">
        <span>{x.length > 0 && words(Math.min(at, x.length - 1))}</span>
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
  const [left, right] = ends(x);
  const [low, high] = ends(y);
  const unit = Math.max((right - left) / frame.width, (high - low) / frame.height) || 1;
  const [halfX, halfY] = [(1.06 * unit * frame.width) / 2, (1.06 * unit * frame.height) / 2];
  const [midX, midY] = [(left + right) / 2, (low + high) / 2];
  return {
    frame,
    across: axis(midX - halfX, midX + halfX, frame.left, frame.left + frame.width),
    up: axis(midY - halfY, midY + halfY, frame.top + frame.height, frame.top),
  };
}

function ends(values: ArrayLike<number>): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (let k = 0; k < values.length; k++) [low, high] = [Math.min(low, values[k]!), Math.max(high, values[k]!)];
  return low <= high ? [low, high] : [0, 1];
}

/** Colors from the first point to the last; the palest end of the map is left out, on white it would not be seen. */
function shade(table: Uint8ClampedArray, k: number, count: number): string {
  const at = 4 * Math.round((215 * k) / Math.max(count - 1, 1));
  return `rgb(${table[at]},${table[at + 1]},${table[at + 2]})`;
}

function draw(
  canvas: HTMLCanvasElement,
  { x, y, name, xLabel, yLabel }: PathProps,
  { frame, across, up }: Plane,
  at: number,
): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const table = colorTable("amount");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = pageColor("muted");
  context.strokeStyle = pageColor("grid");
  context.lineWidth = 1;
  for (const tick of up.ticks(5)) {
    context.beginPath();
    context.moveTo(frame.left, up(tick));
    context.lineTo(frame.left + frame.width, up(tick));
    context.stroke();
    context.textAlign = "right";
    context.fillText(tickText(tick), frame.left - 6, up(tick) + 4);
  }
  context.textAlign = "center";
  for (const tick of across.ticks(Math.max(2, Math.floor(frame.width / 90))))
    context.fillText(tickText(tick), across(tick), frame.top + frame.height + 18);
  context.fillText(xLabel, frame.left + frame.width / 2, frame.top + frame.height + 36);
  context.save();
  context.translate(12, frame.top + frame.height / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(yLabel, 0, 0);
  context.restore();
  context.lineWidth = 2;
  for (let k = 0; k < x.length; k++) {
    context.strokeStyle = context.fillStyle = shade(table, k, x.length);
    if (k > 0) {
      context.beginPath();
      context.moveTo(across(x[k - 1]!), up(y[k - 1]!));
      context.lineTo(across(x[k]!), up(y[k]!));
      context.stroke();
    }
    context.beginPath();
    context.arc(across(x[k]!), up(y[k]!), x.length > 300 ? 1.5 : 3, 0, 2 * Math.PI);
    context.fill();
  }
  if (at < 0) return;
  context.strokeStyle = context.fillStyle = pageColor("ink");
  context.beginPath();
  context.arc(across(x[at]!), up(y[at]!), 6, 0, 2 * Math.PI);
  context.stroke();
  const right = across(x[at]!) < frame.left + 0.75 * frame.width;
  context.textAlign = right ? "left" : "right";
  context.fillText(name(at), across(x[at]!) + (right ? 9 : -9), up(y[at]!) - 7);
}

export function pathSvg(props: PathProps, width = 720): string {
  const { title, x, y, name, xLabel, yLabel } = props;
  const height = Math.round(Math.min(480, 0.75 * width));
  const { frame, across, up } = fitted(props, width, height);
  const table = colorTable("amount");
  const parts = [yAxisSvg(frame, up, yLabel), xAxisSvg(frame, across, xLabel)];
  for (let k = 1; k < x.length; k++) {
    const [x1, y1, x2, y2] = [across(x[k - 1]!), up(y[k - 1]!), across(x[k]!), up(y[k]!)].map(n);
    parts.push(
      `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${shade(table, k, x.length)}" stroke-width="2" stroke-linecap="round"/>`,
    );
  }
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
  return drawing(width, height, title, parts);
}
