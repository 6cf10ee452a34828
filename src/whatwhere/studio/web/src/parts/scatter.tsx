/** A map of points: drag to move, wheel or + and - to zoom, shift and drag to select, n and p for the next and last. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colorTable, pageColor, seriesColor, SERIES } from "../colors";
import { useTheme, useWidth } from "../hooks";
import { announce } from "./announce";
import { Bar } from "./heat";
import { type Label, placeLabels } from "./labels";
import { before, BEHIND, type Box, Grid, pixel, type Points, radius, Raster, type Sight, whole } from "./raster";
import { box, drawing, label, line, n as short, textWidth, wrapped } from "./svg";

export interface ScatterProps {
  title: string;
  points: Points;
  /** What a point is, in words. */
  name(point: number): string;
  /** More of it, for the line below the map. */
  detail?(point: number): string;
  /** What the groups are, in the order of the colors. */
  groups?: string[];
  /** The one group that is shown before the others, and what chooses it. */
  only?: string;
  chooseGroup?(name: string): void;
  /** Groups are amounts, 0 to 254, and these are the numbers at both ends. */
  amount?: [number, number];
  /** Lines of text on the map itself, so that every copy of the picture has them. */
  printed?: string[];
  chosen: number | null;
  choose(point: number | null): void;
  select?(points: number[], box: Box): void;
  /** Whether a drag selects without the shift key. */
  selecting?: boolean;
  /** The rectangle that is selected now. */
  framed?: Box | null;
  /** Points to which lines lead from the chosen one. */
  joined?: number[];
  /** The points by importance: the first are labelled first. */
  order?: ArrayLike<number>;
  height?: number;
}

const NEAR = 12;
/** At most so many points are all labelled. */
const FEW = 60;
/** Pixels of the map for each label, of more points. */
const ROOM = 8000;
const LINE = 16;

export function Scatter(props: ScatterProps) {
  const { title, points, name, chosen, choose, select, selecting = false, framed = null } = props;
  const [holder, width] = useWidth<HTMLDivElement>();
  const height = Math.min(props.height ?? 760, Math.max(320, Math.min(innerHeight - 250, Math.round(0.85 * width))));
  const canvas = useRef<HTMLCanvasElement>(null);
  const picture = useRef(new Picture());
  const grid = useMemo(() => new Grid(points), [points.x, points.y]);
  const [moved, setMoved] = useState<Sight | null>(null);
  const [over, setOver] = useState<number | null>(null);
  const [frame, setFrame] = useState<Drag | null>(null);
  const theme = useTheme();
  const all = whole(grid.box, width || 1, height);
  const sight = moved ?? all;
  useEffect(() => setMoved(null), [points.x]); // other colors leave the sight where it is
  useEffect(() => {
    if (!width) return undefined;
    const next = requestAnimationFrame(() => {
      const shown = canvas.current;
      if (!shown) return; // Preact cleans up after a paint: a frame may come before, when the map has left
      const began = performance.now();
      drawAll(shown, picture.current, props, sight, sight.scale / all.scale, theme, over);
      shown.dataset["milliseconds"] = String(performance.now() - began);
    });
    return () => cancelAnimationFrame(next);
  });
  const position = (event: MouseEvent): [number, number] => {
    const area = canvas.current!.getBoundingClientRect();
    return [event.clientX - area.left, event.clientY - area.top];
  };
  const plane = ([px, py]: [number, number]): [number, number] => [
    sight.x + (px - width / 2) / sight.scale,
    sight.y - (py - height / 2) / sight.scale,
  ];
  const nearer = (by: number, [px, py]: [number, number] = [width / 2, height / 2]) => {
    const [x, y] = plane([px, py]);
    const scale = sight.scale * by;
    setMoved({ scale, x: x - (px - width / 2) / scale, y: y + (py - height / 2) / scale });
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    canvas.current!.setPointerCapture(event.pointerId);
    setFrame({
      from: position(event),
      to: position(event),
      sight,
      selects: (event.shiftKey || selecting) && select !== undefined,
    });
  };
  const move = (event: PointerEvent) => {
    const to = position(event);
    if (!frame) return setOver(grid.nearest(...plane(to), NEAR / sight.scale));
    setFrame({ ...frame, to });
    if (!frame.selects) {
      const by = frame.sight.scale;
      setMoved({
        ...frame.sight,
        x: frame.sight.x - (to[0] - frame.from[0]) / by,
        y: frame.sight.y + (to[1] - frame.from[1]) / by,
      });
    }
  };
  const take = (box: Box) => {
    const inside = grid.inside(box);
    announce(`${inside.length} points selected`);
    select!(inside, box);
  };
  const up = () => {
    if (!frame) return;
    setFrame(null);
    const [from, to] = [plane(frame.from), plane(frame.to)];
    if (Math.hypot(frame.to[0] - frame.from[0], frame.to[1] - frame.from[1]) >= 4) {
      if (frame.selects)
        take({
          left: Math.min(from[0], to[0]),
          right: Math.max(from[0], to[0]),
          bottom: Math.min(from[1], to[1]),
          top: Math.max(from[1], to[1]),
        });
    } else choose(grid.nearest(...to, NEAR / sight.scale));
  };
  const keys = (event: KeyboardEvent) => {
    const far = 60 / sight.scale;
    const by = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, far], ArrowDown: [0, -far] }[event.key];
    if (by) setMoved({ ...sight, x: sight.x + by[0]!, y: sight.y + by[1]! });
    else if (event.key === "+" || event.key === "=") nearer(1.4);
    else if (event.key === "-") nearer(1 / 1.4);
    else if (event.key === "0") setMoved(null);
    else if (event.key === "Escape") choose(null);
    else if (event.key === "s" && select) take(seen(sight, width, height));
    else if (event.key === "n" || event.key === "p") {
      const total = points.x.length;
      const next =
        chosen === null
          ? (grid.nearest(sight.x, sight.y, Infinity) ?? 0)
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
  const printed = props.printed ?? [];
  const words = `${[title, ...printed].join(". ")}. ${points.x.length} points. Arrow keys move, plus and minus zoom, 0 shows all, n and p go from point to point,${select ? " s selects what is in sight," : ""} Escape clears the choice.`;
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
          onPointerCancel={() => setFrame(null)}
          onPointerLeave={() => setOver(null)}
        />
        {frame?.selects && <div class="selection" style={selection(frame)} />}
        {!frame?.selects && framed && <div class="selection" style={visiblePart(framed, sight, width, height)} />}
        {moved && (
          <button type="button" class="whole" onClick={() => setMoved(null)}>
            Show all
          </button>
        )}
        {printed.length > 0 && (
          <p class="printed" aria-hidden="true">
            {printed.map((text) => (
              <span key={text}>{text}</span>
            ))}
          </p>
        )}
      </div>
      <p class="under">
        <span>
          <bdi>{caption(props, over ?? chosen)}</bdi>
        </span>
        {props.amount ? (
          <Bar map="amount" range={props.amount} />
        ) : (
          props.groups && <Groups names={props.groups} only={props.only ?? ""} choose={props.chooseGroup} />
        )}
      </p>
    </div>
  );
}

interface Drag {
  from: [number, number];
  to: [number, number];
  sight: Sight;
  selects: boolean;
}

function selection({ from, to }: Drag) {
  const px = (value: number) => `${value}px`;
  return {
    left: px(Math.min(from[0], to[0])),
    top: px(Math.min(from[1], to[1])),
    width: px(Math.abs(to[0] - from[0])),
    height: px(Math.abs(to[1] - from[1])),
  };
}

function caption({ name, detail = name, select }: ScatterProps, point: number | null): string {
  if (point !== null) return detail(point);
  return `Drag to move, scroll to zoom${select ? ", shift-drag to select" : ""}.`;
}

function seen(sight: Sight, width: number, height: number): Box {
  const [right, top] = [width / 2 / sight.scale, height / 2 / sight.scale];
  return { left: sight.x - right, right: sight.x + right, bottom: sight.y - top, top: sight.y + top };
}

/** Return the visible part of a rectangle of the plane, as a style in pixels. */
function visiblePart(box: Box, sight: Sight, width: number, height: number) {
  const x = (value: number) => Math.min(Math.max(width / 2 + (value - sight.x) * sight.scale, 0), width);
  const y = (value: number) => Math.min(Math.max(height / 2 - (value - sight.y) * sight.scale, 0), height);
  const px = (value: number) => `${value}px`;
  return {
    left: px(x(box.left)),
    top: px(y(box.top)),
    width: px(x(box.right) - x(box.left)),
    height: px(y(box.bottom) - y(box.top)),
  };
}

interface GroupsProps {
  names: string[];
  only?: string;
  choose?: ((name: string) => void) | undefined;
}

export function Groups({ names, only = "", choose }: GroupsProps) {
  return (
    <span class="groups">
      {names.map((text, n) => {
        if (text === "") return null;
        const shown = (
          <>
            <i style={{ background: `var(--c${n % SERIES})` }} /> {text}
          </>
        );
        if (!choose) return <span key={text}>{shown}</span>;
        return (
          <button
            key={text}
            type="button"
            aria-pressed={only === text}
            title={`Show ${text} before all others`}
            onClick={() => choose(only === text ? "" : text)}
          >
            {shown}
          </button>
        );
      })}
    </span>
  );
}

function palette(amounts: boolean): Uint32Array {
  const table = new Uint32Array(colorTable("amount").buffer);
  const colors = Uint32Array.from({ length: 256 }, (_, n) => (amounts ? table[n]! : pixel(seriesColor(n))));
  colors[BEHIND] = pixel(pageColor("grid"));
  return colors;
}

/** The points as they were drawn last: hovering, choosing and selecting do not draw them again. */
class Picture {
  readonly #raster = new Raster();
  #image: ImageData | null = null;
  #of: unknown[] = [];

  image(
    width: number,
    height: number,
    { points, amount }: ScatterProps,
    sight: Sight,
    zoom: number,
    theme: string,
  ): ImageData {
    const of = [
      width,
      height,
      points.x,
      points.y,
      points.group,
      amount !== undefined,
      sight.x,
      sight.y,
      sight.scale,
      theme,
    ];
    if (this.#image && of.every((each, n) => each === this.#of[n])) return this.#image;
    if (this.#image?.width !== width || this.#image.height !== height) this.#image = new ImageData(width, height);
    const ratio = devicePixelRatio;
    this.#raster.draw(
      this.#image,
      points,
      { ...sight, scale: sight.scale * ratio },
      palette(amount !== undefined),
      pixel(pageColor("page")),
      ratio,
      zoom,
    );
    this.#of = of;
    return this.#image;
  }
}

function drawAll(
  canvas: HTMLCanvasElement,
  picture: Picture,
  props: ScatterProps,
  sight: Sight,
  zoom: number,
  theme: string,
  over: number | null,
): void {
  const { points, name, chosen } = props;
  const context = canvas.getContext("2d", { alpha: false })!;
  const ratio = devicePixelRatio;
  context.putImageData(picture.image(canvas.width, canvas.height, props, sight, zoom, theme), 0, 0);
  context.save();
  context.scale(ratio, ratio);
  const [width, height] = [canvas.width / ratio, canvas.height / ratio];
  const at = placing(points, sight, width, height);
  context.strokeStyle = context.fillStyle = pageColor("ink");
  context.textBaseline = "middle";
  const others = chosen === null ? [] : (props.joined ?? []);
  for (const other of others) {
    context.beginPath();
    context.moveTo(...at(chosen!));
    context.lineTo(...at(other));
    context.stroke();
  }
  const size = radius(before(points), zoom);
  const rings = new Set([chosen, ...others, over].filter((n) => n !== null && n !== undefined));
  for (const n of rings) {
    context.beginPath();
    context.arc(...at(n), size + 3, 0, 2 * Math.PI);
    context.stroke();
  }
  const font = (bold: boolean) => (context.font = `${bold ? 600 : 400} 13px system-ui, sans-serif`);
  font(true);
  const measure = (text: string) => context.measureText(text).width;
  for (const { point, text, x, y, leader } of labels(props, at, measure, width, height, size)) {
    font(rings.has(point));
    if (leader) lead(context, at(point), leader);
    haloed(context, text, x, y);
  }
  if (over !== null) {
    font(true);
    const [x, y] = at(over);
    context.fillStyle = pageColor("page");
    context.fillRect(x + size + 4, y - LINE / 2 - 1, measure(name(over)) + 4, LINE + 2);
    context.fillStyle = pageColor("ink");
    context.fillText(name(over), x + size + 6, y);
  }
  context.restore();
}

function placing({ x, y }: Points, sight: Sight, width: number, height: number) {
  return (n: number): [number, number] => [
    width / 2 + (x[n]! - sight.x) * sight.scale,
    height / 2 - (y[n]! - sight.y) * sight.scale,
  ];
}

/** Return the labels of what is drawn: of the chosen point, those joined with it, then of others by importance. */
function labels(
  { points, chosen, joined = [], order = [], name }: ScatterProps,
  position: (n: number) => [number, number],
  measure: (text: string) => number,
  width: number,
  height: number,
  size: number,
): Label[] {
  const first = chosen === null ? [] : [chosen, ...joined];
  const given = new Set(first);
  function* all() {
    yield* first;
    for (let k = 0; k < order.length; k++) {
      const n = order[k]!;
      if (points.group?.[n] !== BEHIND && !given.has(n)) yield n;
    }
  }
  const few = before(points) <= FEW;
  const most = few ? FEW : Math.max(20, first.length + Math.round((width * height) / ROOM));
  return placeLabels({
    order: all(),
    position,
    text: name,
    measure,
    width,
    height,
    radius: size,
    line: LINE,
    most,
    all: few,
  });
}

/** Draw a line from a point to its label. */
function lead(context: CanvasRenderingContext2D, from: [number, number], to: [number, number]): void {
  context.strokeStyle = pageColor("muted");
  context.lineWidth = 0.7;
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
}

function haloed(context: CanvasRenderingContext2D, text: string, x: number, y: number): void {
  context.save();
  context.strokeStyle = pageColor("page");
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.restore();
  context.fillText(text, x, y);
}

/** Return the whole map as SVG: the points as one picture, names as text. */
export function scatterSvg(props: ScatterProps, width = 960): string {
  const height = Math.round(0.8 * width);
  const canvas = document.createElement("canvas");
  canvas.width = 2 * width;
  canvas.height = 2 * height;
  const sight = whole(new Grid(props.points).box, width, height);
  const image = new ImageData(canvas.width, canvas.height);
  new Raster().draw(
    image,
    props.points,
    { ...sight, scale: 2 * sight.scale },
    palette(props.amount !== undefined),
    pixel(pageColor("page")),
    2,
  );
  const context = canvas.getContext("2d")!;
  context.putImageData(image, 0, 0);
  const parts = [`<image x="0" y="0" width="${width}" height="${height}" href="${canvas.toDataURL("image/png")}"/>`];
  const spot = placing(props.points, sight, width, height);
  const { chosen, joined = [] } = props;
  const named = chosen === null ? [] : [chosen, ...joined];
  for (const other of chosen === null ? [] : joined)
    parts.push(line(...spot(chosen!), ...spot(other), pageColor("ink")));
  const size = radius(before(props.points));
  for (const n of named) {
    const [x, y] = spot(n);
    parts.push(`<circle cx="${short(x)}" cy="${short(y)}" r="${size + 3}" fill="none" stroke="${pageColor("ink")}"/>`);
  }
  context.font = "13px sans-serif";
  const measure = (text: string) => context.measureText(text).width;
  for (const { point, text, x, y, leader } of labels(props, spot, measure, width, height, size)) {
    if (leader) parts.push(line(...spot(point), ...leader, pageColor("muted"), 0.7));
    parts.push(label(x, y + 4, text));
  }
  let [x, y] = [8, height + 8];
  (props.amount ? [] : (props.groups ?? [])).forEach((text, n) => {
    if (text === "") return;
    const room = 18 + textWidth(text);
    if (x > 8 && x + room > width) [x, y] = [8, y + 18];
    parts.push(box(x, y, 12, 12, seriesColor(n)), label(x + 18, y + 10, text));
    x += room + 14;
  });
  if (x > 8) y += 18;
  const lines = (props.printed ?? []).flatMap((text) => wrapped(text, width - 16));
  lines.forEach((text, n) => parts.push(label(8, y + 12 + 16 * n, text)));
  return drawing(width, y + 16 * lines.length + 6, props.title, parts);
}
