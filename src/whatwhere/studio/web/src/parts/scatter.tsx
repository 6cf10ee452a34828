/** A map of points: drag to move, wheel or + and - to zoom, shift and drag to select, n and p for the next and last. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colorTable, pageColor, seriesColor, SERIES } from "../colors";
import { useTheme, useWidth } from "../hooks";
import { announce } from "./announce";
import { Bar } from "./heat";
import { BEHIND, type Box, Grid, pixel, type Points, Raster, type Sight, whole } from "./raster";
import { box, drawing, label, line, n as short } from "./svg";

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
  height?: number;
}

const NEAR = 12;

export function Scatter(props: ScatterProps) {
  const { title, points, name, chosen, choose, select, joined = [], selecting = false, framed = null } = props;
  const [holder, width] = useWidth<HTMLDivElement>();
  const height = Math.min(props.height ?? 560, Math.max(320, Math.round(0.9 * width)));
  const canvas = useRef<HTMLCanvasElement>(null);
  const picture = useRef(new Picture());
  const grid = useMemo(() => new Grid(points), [points.x, points.y]);
  const [moved, setMoved] = useState<Sight | null>(null);
  const [over, setOver] = useState<number | null>(null);
  const [frame, setFrame] = useState<Drag | null>(null);
  const theme = useTheme();
  const sight = moved ?? whole(grid.box, width || 1, height);
  useEffect(() => setMoved(null), [points.x]); // other colors leave the sight where it is
  useEffect(() => {
    if (!width) return undefined;
    const next = requestAnimationFrame(() => {
      const shown = canvas.current;
      if (!shown) return; // Preact cleans up after a paint: a frame may come before, when the map has left
      const began = performance.now();
      drawAll(shown, picture.current, props, sight, theme, [...new Set([over, chosen])], joined);
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

  image(width: number, height: number, { points, amount }: ScatterProps, sight: Sight, theme: string): ImageData {
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
  theme: string,
  shown: (number | null)[],
  joined: number[],
): void {
  const { points, name } = props;
  const context = canvas.getContext("2d", { alpha: false })!;
  const ratio = devicePixelRatio;
  context.putImageData(picture.image(canvas.width, canvas.height, props, sight, theme), 0, 0);
  const at = (n: number): [number, number] => [
    canvas.width / 2 + (points.x[n]! - sight.x) * sight.scale * ratio,
    canvas.height / 2 - (points.y[n]! - sight.y) * sight.scale * ratio,
  ];
  const chosen = shown.at(-1) ?? null;
  context.strokeStyle = context.fillStyle = pageColor("ink");
  context.font = `600 ${13 * ratio}px system-ui, sans-serif`;
  context.lineWidth = ratio;
  const others = chosen === null ? [] : joined;
  for (const other of others) {
    context.beginPath();
    context.moveTo(...at(chosen!));
    context.lineTo(...at(other));
    context.stroke();
  }
  const named = shown.filter((n) => n !== null).reverse(); // the chosen one first: its name is always shown
  const free = apart((text) => context.measureText(text).width, ratio);
  for (const n of new Set([...named, ...others])) marked(context, at(n), free(at(n), name(n)) ? name(n) : "", ratio);
}

/** Return a function that decides, name by name, whether a label has room beside those before it. */
function apart(width: (text: string) => number, ratio: number) {
  const taken: Box[] = [];
  return ([x, y]: [number, number], text: string): boolean => {
    const left = x + 8 * ratio;
    const area: Box = { left, right: left + width(text), bottom: y - 20 * ratio, top: y - 3 * ratio };
    if (
      taken.some(
        (other) =>
          area.left < other.right && other.left < area.right && area.bottom < other.top && other.bottom < area.top,
      )
    )
      return false;
    taken.push(area);
    return true;
  };
}

function marked(context: CanvasRenderingContext2D, [x, y]: [number, number], text: string, ratio: number): void {
  context.beginPath();
  context.arc(x, y, 5 * ratio, 0, 2 * Math.PI);
  context.stroke();
  context.save();
  context.strokeStyle = pageColor("page");
  context.lineWidth = 3 * ratio;
  context.strokeText(text, x + 8 * ratio, y - 6 * ratio);
  context.restore();
  context.fillText(text, x + 8 * ratio, y - 6 * ratio);
}

/** Return the whole map as SVG: the points as one picture, names as text. */
export function scatterSvg(props: ScatterProps, width = 960, height = 640): string {
  const canvas = document.createElement("canvas");
  canvas.width = 2 * width;
  canvas.height = 2 * height;
  const box_ = new Grid(props.points).box;
  const sight = whole(box_, width, height);
  const image = new ImageData(canvas.width, canvas.height);
  new Raster().draw(
    image,
    props.points,
    { ...sight, scale: 2 * sight.scale },
    palette(props.amount !== undefined),
    pixel(pageColor("page")),
    2,
  );
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  const parts = [`<image x="0" y="0" width="${width}" height="${height}" href="${canvas.toDataURL("image/png")}"/>`];
  const named = props.chosen === null ? [] : [props.chosen, ...(props.joined ?? [])];
  const spot = (n: number): [number, number] => [
    width / 2 + (props.points.x[n]! - sight.x) * sight.scale,
    height / 2 - (props.points.y[n]! - sight.y) * sight.scale,
  ];
  for (const other of props.joined ?? [])
    if (props.chosen !== null) parts.push(line(...spot(props.chosen), ...spot(other), pageColor("ink")));
  const free = apart((text) => 7 * text.length, 1); // an SVG cannot be measured before it is drawn
  for (const n of named) {
    const [x, y] = spot(n);
    parts.push(`<circle cx="${short(x)}" cy="${short(y)}" r="5" fill="none" stroke="${pageColor("ink")}"/>`);
    if (free([x, y], props.name(n))) parts.push(label(x + 8, y - 6, props.name(n)));
  }
  if (!props.amount)
    (props.groups ?? []).forEach((text, n) =>
      parts.push(box(8, 8 + 18 * n, 12, 12, seriesColor(n)), label(26, 18 + 18 * n, text)),
    );
  (props.printed ?? []).forEach((text, n, all) =>
    parts.push(label(width - 8, height - 8 - 16 * (all.length - 1 - n), text, "end")),
  );
  return drawing(width, height, props.title, parts);
}
