/** A map of points: drag to move, wheel or + and - to zoom, shift and drag to select, n and p for the next and last. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colorTable, cssColor, cssSeries, pageColor, SERIES } from "../colors";
import { useTheme, useWidth } from "../hooks";
import { announce } from "./states";
import { Bar } from "./heat";
import { placeLabels } from "./labels";
import {
  before,
  BEHIND,
  type Box,
  drawPoints,
  nearest,
  pixel,
  type Points,
  pointsInside,
  radius,
  type Sight,
  whole,
} from "./raster";
import { box, circle, drawing, haloed, label, line, SELECTED, textWidth, wrapped } from "./svg";

export interface ScatterProps {
  title: string;
  points: Points;
  name(point: number): string;
  /** More of it, for the line below the map. */
  detail(point: number): string;
  /** What the groups are, in the order of the colors. */
  groups?: string[];
  /** Groups are amounts, 0 to 254, and these are the numbers at both ends. */
  amount?: [number, number];
  /** The one group that is shown before the others, and what chooses it. */
  only: string;
  chooseGroup(name: string): void;
  /** Lines of text on the map itself, so that every copy of the picture has them. */
  printed: string[];
  chosen: number | null;
  choose(point: number | null): void;
  select(box: Box): void;
  /** Whether a drag selects without the shift key. */
  selecting: boolean;
  framed: Box | null;
  /** Points to which lines lead from the chosen one. */
  joined: number[];
  /** The points by importance: the first are labelled first. */
  order: number[];
}

const NEAR = 12;
/** At most so many points are all labelled. */
const FEW = 60;
/** Pixels of the map for each label, of more points. */
const ROOM = 8000;
const LINE = 16;

export function Scatter(props: ScatterProps) {
  const { title, points, name, chosen, choose, select, selecting, framed, printed } = props;
  const [holder, width] = useWidth<HTMLDivElement>();
  const height = Math.min(760, Math.max(320, Math.min(innerHeight - 400, Math.round(0.85 * width))));
  const canvas = useRef<HTMLCanvasElement>(null);
  const [moved, setMoved] = useState<Sight | null>(null);
  const [over, setOver] = useState<number | null>(null);
  const [drag, setDrag] = useState<Drag | null>(null);
  const theme = useTheme();
  const all = useMemo(() => whole(points, width || 1, height), [points.x, width, height]);
  const sight = moved ?? all;
  const zoom = sight.scale / all.scale;
  useEffect(() => setMoved(null), [points.x]); // other colors leave the sight where it is
  useEffect(() => {
    if (!width) return undefined;
    const next = requestAnimationFrame(() => {
      const shown = canvas.current;
      if (!shown) return; // Preact cleans up after a paint: a frame may come before, when the map has left
      const began = performance.now();
      shown.getContext("2d")!.putImageData(pictureOf(props, sight, zoom, shown, devicePixelRatio), 0, 0);
      shown.dataset["milliseconds"] = String(performance.now() - began);
    });
    return () => cancelAnimationFrame(next);
  }, [points, props.amount !== undefined, width, height, sight.x, sight.y, sight.scale, theme]);
  const view: Seen = { sight, width, height, zoom };
  const notes = useMemo(
    () => annotated(props, view, over),
    [props, over, width, height, sight.x, sight.y, sight.scale],
  );
  const position = (event: MouseEvent): Spot => {
    const area = canvas.current!.getBoundingClientRect();
    return [event.clientX - area.left, event.clientY - area.top];
  };
  const plane = ([px, py]: Spot): Spot => [
    sight.x + (px - width / 2) / sight.scale,
    sight.y - (py - height / 2) / sight.scale,
  ];
  const nearer = (by: number, [px, py]: Spot = [width / 2, height / 2]) => {
    const [x, y] = plane([px, py]);
    const scale = sight.scale * by;
    setMoved({ scale, x: x - (px - width / 2) / scale, y: y + (py - height / 2) / scale });
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    canvas.current!.setPointerCapture(event.pointerId);
    const from = position(event);
    setDrag({ from, to: from, sight, selects: event.shiftKey || selecting });
  };
  const move = (event: PointerEvent) => {
    const to = position(event);
    if (!drag) return setOver(nearest(points, ...plane(to), NEAR / sight.scale));
    setDrag({ ...drag, to });
    const { scale, x, y } = drag.sight;
    if (!drag.selects)
      setMoved({ scale, x: x - (to[0] - drag.from[0]) / scale, y: y + (to[1] - drag.from[1]) / scale });
  };
  const take = (from: Spot, to: Spot) => {
    const [left, right] = [Math.min(from[0], to[0]), Math.max(from[0], to[0])];
    const [bottom, top] = [Math.min(from[1], to[1]), Math.max(from[1], to[1])];
    const area = { left, right, bottom, top };
    announce(`${pointsInside(points, area).length} points selected`);
    select(area);
  };
  const up = () => {
    if (!drag) return;
    setDrag(null);
    const { from, to, selects } = drag;
    if (Math.hypot(to[0] - from[0], to[1] - from[1]) < 4) choose(nearest(points, ...plane(to), NEAR / sight.scale));
    else if (selects) take(plane(from), plane(to));
  };
  const keys = (event: KeyboardEvent) => {
    const far = 60 / sight.scale;
    const by = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, far], ArrowDown: [0, -far] }[event.key];
    if (by) setMoved({ ...sight, x: sight.x + by[0]!, y: sight.y + by[1]! });
    else if (event.key === "+" || event.key === "=") nearer(1.4);
    else if (event.key === "-") nearer(1 / 1.4);
    else if (event.key === "0") setMoved(null);
    else if (event.key === "Escape") choose(null);
    else if (event.key === "s") take(plane([0, 0]), plane([width, height]));
    else if (event.key === "n" || event.key === "p") {
      const total = points.x.length;
      const next =
        chosen === null
          ? (nearest(points, sight.x, sight.y, Infinity) ?? 0)
          : (chosen + (event.key === "n" ? 1 : total - 1)) % total;
      choose(next);
      announce(name(next));
    } else return;
    event.preventDefault();
  };
  useEffect(() => {
    // Not as a property: wheels that may not scroll the page need a listener that is not passive.
    const zoom = (event: WheelEvent) => {
      event.preventDefault();
      nearer(Math.exp(-event.deltaY / 400), position(event));
    };
    const shown = canvas.current;
    shown?.addEventListener("wheel", zoom, { passive: false });
    return () => shown?.removeEventListener("wheel", zoom);
  });
  const words = `${[title, ...printed].join(". ")}. ${points.x.length} points. Arrow keys move, plus and minus zoom, 0 shows all, n and p go from point to point, s selects what is in sight, Escape clears the choice.`;
  const at = over ?? chosen;
  const marked = drag?.selects ? frameSvg(drag.from, drag.to) : framed && frameSvg(...corners(framed, view));
  return (
    <div ref={holder} class="scatter">
      <div
        class="chart"
        role="application"
        aria-roledescription="map of points"
        aria-label={words}
        tabIndex={0}
        onKeyDown={keys}
      >
        <canvas
          ref={canvas}
          width={Math.max(1, Math.round(width * devicePixelRatio))}
          height={Math.round(height * devicePixelRatio)}
          style={{ width: "100%", height: `${height}px`, display: "block", touchAction: "none" }}
          onPointerDown={down}
          onPointerMove={move}
          onPointerUp={up}
          onPointerCancel={() => setDrag(null)}
          onPointerLeave={() => setOver(null)}
        />
        <svg
          class="over"
          viewBox={`0 0 ${width || 1} ${height}`}
          aria-hidden="true"
          dangerouslySetInnerHTML={{ __html: notes + (marked ?? "") }}
        />
        {moved && (
          <button type="button" class="whole" onClick={() => setMoved(null)}>
            Show all
          </button>
        )}
        <p class="printed" aria-hidden="true">
          {printed.map((text) => (
            <span key={text}>{text}</span>
          ))}
        </p>
      </div>
      <p class="under">
        <span>
          <bdi>{at === null ? "Drag to move, scroll to zoom, shift-drag to select." : props.detail(at)}</bdi>
        </span>
        {props.amount ? <Bar map="amount" range={props.amount} /> : <Groups {...props} />}
      </p>
    </div>
  );
}

type Spot = [x: number, y: number];

/** A drag over the map, in pixels, and the sight when it began. */
interface Drag {
  from: Spot;
  to: Spot;
  sight: Sight;
  selects: boolean;
}

function Groups({ groups = [], only, chooseGroup }: ScatterProps) {
  return (
    <span class="groups">
      {groups.map((text, n) => {
        if (text === "") return null;
        return (
          <button
            key={text}
            type="button"
            aria-pressed={only === text}
            title={`Show ${text} before all others`}
            onClick={() => chooseGroup(only === text ? "" : text)}
          >
            <i style={{ background: cssSeries(n) }} /> {text}
          </button>
        );
      })}
    </span>
  );
}

function pictureOf({ points, amount }: ScatterProps, sight: Sight, zoom: number, size: Size, ratio: number): ImageData {
  const image = new ImageData(size.width, size.height);
  const table = new Uint32Array(colorTable("amount").buffer);
  const series = Array.from({ length: SERIES }, (_, n) => pixel(pageColor(`c${n}`)));
  const colors = Uint32Array.from({ length: 256 }, (_, n) => (amount ? table[n]! : series[n % SERIES]!));
  colors[BEHIND] = pixel(pageColor("grid"));
  const scaled = { ...sight, scale: sight.scale * ratio };
  drawPoints(image, points, scaled, colors, pixel(pageColor("page")), { ratio, zoom });
  return image;
}

interface Size {
  width: number;
  height: number;
}

interface Seen extends Size {
  sight: Sight;
  zoom: number;
}

function spotAt(x: number, y: number, { sight, width, height }: Seen): Spot {
  return [width / 2 + (x - sight.x) * sight.scale, height / 2 - (y - sight.y) * sight.scale];
}

function corners({ left, right, bottom, top }: Box, seen: Seen): [Spot, Spot] {
  return [spotAt(left, top, seen), spotAt(right, bottom, seen)];
}

function frameSvg(from: Spot, to: Spot): string {
  const [x, y] = [Math.min(from[0], to[0]), Math.min(from[1], to[1])];
  return box(x, y, Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1]), SELECTED, cssColor("link"));
}

const measuring = document.createElement("canvas").getContext("2d")!;

function measure(text: string): number {
  measuring.font = "600 13px system-ui, sans-serif";
  return measuring.measureText(text).width;
}

/** Draw what is around the points: rings and lines of the chosen one, and names by importance. */
function annotated(props: ScatterProps, seen: Seen, over: number | null = null): string {
  const { points, name, chosen, joined, order } = props;
  const at = (n: number) => spotAt(points.x[n]!, points.y[n]!, seen);
  const shown = before(points);
  const size = radius(shown, seen.zoom);
  const first = chosen === null ? [] : [chosen, ...joined];
  const rings = new Set(over === null ? first : [...first, over]);
  const parts = first.slice(1).map((other) => line(...at(chosen!), ...at(other), cssColor("ink")));
  for (const n of rings) parts.push(circle(...at(n), size + 3, "none", cssColor("ink")));
  const given = new Set(first);
  function* byImportance() {
    yield* first;
    for (const n of order) if (points.group[n] !== BEHIND && !given.has(n)) yield n;
  }
  const { width, height } = seen;
  const all = shown <= FEW;
  const most = all ? FEW : Math.max(20, first.length + Math.round((width * height) / ROOM));
  const printed = Math.max(0, ...props.printed.map(measure)) + 24;
  const corner = { left: width - printed, right: width, low: height - 22 * props.printed.length - 8, high: height };
  const room = { width, height, radius: size, line: LINE, most, all, occupied: [corner] };
  const labels = placeLabels({ order: byImportance(), position: at, text: name, measure, ...room });
  for (const { point, text, x, y, leader } of labels) {
    if (leader) parts.push(line(...at(point), ...leader, cssColor("muted"), 0.7));
    parts.push(named(x, y, text, rings.has(point)));
  }
  if (over !== null) {
    const [x, y] = at(over);
    const wide = measure(name(over)) + 4;
    parts.push(box(x + size + 4, y - LINE / 2 - 1, wide, LINE + 2, cssColor("page")));
    parts.push(named(x + size + 6, y, name(over), true));
  }
  return parts.join("");
}

function named(x: number, y: number, text: string, bold: boolean): string {
  return `<g font-size="13" font-weight="${bold ? 600 : 400}">${haloed(x, y + 4, text, "start")}</g>`;
}

/** Return the whole map as SVG: the points as one picture, names as text. */
export function scatterSvg(props: ScatterProps): string {
  const [width, height] = [960, 768];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  const sight = whole(props.points, width, height);
  canvas.getContext("2d")!.putImageData(pictureOf(props, sight, 1, canvas, 2), 0, 0);
  const parts = [
    `<image x="0" y="0" width="${width}" height="${height}" href="${canvas.toDataURL("image/png")}"/>`,
    annotated(props, { sight, width, height, zoom: 1 }),
  ];
  let [x, y] = [8, height + 8];
  (props.amount ? [] : (props.groups ?? [])).forEach((text, n) => {
    if (text === "") return;
    const room = 18 + textWidth(text);
    if (x > 8 && x + room > width) [x, y] = [8, y + 18];
    parts.push(box(x, y, 12, 12, cssSeries(n)), label(x + 18, y + 10, text));
    x += room + 14;
  });
  if (x > 8) y += 18;
  const lines = props.printed.flatMap((text) => wrapped(text, width - 16));
  lines.forEach((text, n) => parts.push(label(8, y + 12 + 16 * n, text)));
  return drawing(width, y + 16 * lines.length + 6, props.title, parts);
}
