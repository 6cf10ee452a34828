/** Heat maps: one cell for each number, read by mouse or by arrow keys, with axes and a color bar. */

import { useMemo, useState } from "preact/hooks";
import { colorTable, cssColor, type MapName } from "../colors";
import { useWidth } from "../hooks";
import { formatNumber } from "../numbers";
import type { Tensor } from "../wire";
import { announce } from "./states";
import {
  axis,
  counting,
  drawing,
  type Frame,
  haloed,
  label,
  line,
  textWidth,
  tickRoom,
  UNDER,
  upright,
  xAxisSvg,
  yAxisSvg,
} from "./svg";

export interface HeatProps {
  title: string;
  /** The numbers, (rows, columns); what is not finite stays clear. */
  cells: Tensor;
  yLabel: string;
  xLabel: string;
  /** Written beside the rows, instead of numbers; and below the columns, where they are the same things. */
  labels?: string[];
  /** The numbers of the rows and columns, evenly spaced; without, 0, 1, 2, ... */
  numbers?: ArrayLike<number>;
  barLabel?: string;
  map?: MapName;
  /** The number at the ends of the colors; without, the greatest size among the values. */
  limit?: number;
  framed?: number;
  /** Lines after rows, and after the same columns of a square map, with what they are. */
  rules?: { x: number; text: string }[];
  /** Whether the color bar is left to the figure, as where many maps share one. */
  barless?: boolean;
  cell?: number;
  /** Whether rows and columns are the same things, so that cells are square. */
  square?: boolean;
}

export function Heat(props: HeatProps) {
  const { title, cells, map, limit, barLabel } = props;
  const [rows = 0, columns = 0] = cells.shape;
  const [holder, measured] = useWidth<HTMLDivElement>();
  const width = Math.max(measured, 160);
  const [at, setAt] = useState<[number, number] | null>(null);
  const range = useMemo(() => heatRange(props), [cells.values, map, limit]);
  const picture = useMemo(() => painted(props, range).toDataURL(), [cells.values, range]);
  const { svg, frame, height } = useMemo(() => mapSvg(props, width, picture), [props, width, picture]);
  const read = (row: number, column: number) => {
    const here: [number, number] = [Math.min(Math.max(row, 0), rows - 1), Math.min(Math.max(column, 0), columns - 1)];
    setAt(here);
    return here;
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    if (event.key === "Escape") setAt(null);
    if (!by) return;
    event.preventDefault();
    announce(cellWords(props, ...read((at?.[0] ?? 0) + (at ? by[0]! : 0), (at?.[1] ?? 0) + (at ? by[1]! : 0))));
  };
  const point = (event: PointerEvent) => {
    const area = holder.current!.getBoundingClientRect();
    const row = (((event.clientY - area.top) * height) / area.height - frame.top) / frame.height;
    const column = (((event.clientX - area.left) * width) / area.width - frame.left) / frame.width;
    if (row < 0 || row >= 1 || column < 0 || column >= 1) setAt(null);
    else read(Math.floor(row * rows), Math.floor(column * columns));
  };
  const words = `${title}. ${rows} rows and ${columns} columns, from ${formatNumber(range[0])} to ${formatNumber(range[1])}. Arrow keys read the cells.`;
  return (
    <div class="heat">
      <div
        class="chart"
        role="application"
        aria-roledescription="heat map"
        aria-label={words}
        tabIndex={0}
        ref={holder}
        onKeyDown={keys}
        onBlur={() => setAt(null)}
        onPointerMove={point}
        onPointerLeave={() => setAt(null)}
      >
        <svg viewBox={`0 0 ${width} ${height}`} aria-hidden="true" dangerouslySetInnerHTML={{ __html: svg }} />
        {at && <Tip props={props} at={at} frame={frame} size={[width, height]} />}
      </div>
      {!props.barless && (
        <p class="under">
          <span />
          <Bar map={map} range={range} text={barLabel} />
        </p>
      )}
    </div>
  );
}

interface TipProps {
  props: HeatProps;
  at: [number, number];
  frame: Frame;
  size: [number, number];
}

function Tip({ props, at: [row, column], frame, size: [width, height] }: TipProps) {
  const [rows = 0, columns = 0] = props.cells.shape;
  const x = frame.left + ((column + 0.5) / columns) * frame.width;
  const y = frame.top + ((row + 0.5) / rows) * frame.height;
  const share = (part: number, all: number) => `${(100 * part) / all}%`;
  const side = x > width / 2 ? { right: share(width - x + 12, width) } : { left: share(x + 12, width) };
  return (
    <div class="tip" aria-hidden="true" style={{ ...side, top: share(y, height) }}>
      <bdi>{cellWords(props, row, column)}</bdi>
    </div>
  );
}

interface BarProps {
  map?: MapName | undefined;
  range: [number, number];
  text?: string | undefined;
}

/** The colors between two numbers; of a signed map those alone that there are. */
export function Bar({ map = "signed", range, text }: BarProps) {
  const picture = useMemo(() => barUrl(map, range), [map, ...range]);
  return (
    <span class="bar">
      {text} {formatNumber(range[0])} <img src={picture} alt="" /> {formatNumber(range[1])}
    </span>
  );
}

function barUrl(map: MapName, range: [number, number]): string {
  const [table, image] = [colorTable(map), new ImageData(256, 1)];
  for (let n = 0; n < 256; n++) {
    const at = 4 * colorAt(map, range, range[0] + (n / 255) * (range[1] - range[0]));
    image.data.set(table.subarray(at, at + 4), 4 * n);
  }
  return canvasOf(image).toDataURL();
}

function colorAt(map: MapName, [low, high]: [number, number], value: number): number {
  const share = map === "signed" ? 0.5 + (0.5 * value) / Math.max(-low, high) : (value - low) / (high - low);
  return Math.min(255, Math.max(0, Math.round(share * 255)));
}

/** Beyond so many characters, a label of a row or a column is cut. */
const MOST_LABEL = 18;

function cutLabel(text: string): string {
  const all = Array.from(text);
  return all.length > MOST_LABEL ? `${all.slice(0, MOST_LABEL - 1).join("")}…` : text;
}

function labelRoom(texts: string[]): number {
  return Math.ceil(Math.max(0, ...texts.map((text) => textWidth(cutLabel(text)))) + 8);
}

/** Return where the cells are in a drawing of this width, and how tall it is. */
function laidOut(props: HeatProps, width: number): { frame: Frame; height: number } {
  const { labels, numbers, cell = 22, square = false } = props;
  const [rows = 0, columns = 0] = props.cells.shape;
  const tall = Math.max(rows * Math.min(cell, Math.max(1, 480 / rows)), 40);
  const last = numbers?.[rows - 1] ?? rows - 1;
  const left = labels ? labelRoom(labels) + 22 : tickRoom([last], props.yLabel, tall);
  const across = Math.max(width - left - 10, 40);
  const side = Math.min(across, Math.max(tall, 240), 480);
  const frame = { left, top: 6, width: square ? side : across, height: square ? side : tall };
  const under = square && labels && isTight(labels, frame.width / columns) ? labelRoom(labels) + 22 : UNDER;
  return { frame, height: frame.top + frame.height + under };
}

function isTight(labels: string[], cell: number): boolean {
  return labels.some((text) => textWidth(cutLabel(text)) > cell - 6);
}

function axesOf(props: HeatProps, frame: Frame): string {
  const muted = cssColor("muted");
  const { left, top, width, height } = frame;
  const { labels, numbers, square = false } = props;
  const [rows = 0, columns = 0] = props.cells.shape;
  const ends = (count: number): [number, number] => {
    const half = numbers && count > 1 ? (numbers[1]! - numbers[0]!) / 2 : 0.5;
    return [(numbers?.[0] ?? 0) - half, (numbers?.[count - 1] ?? count - 1) + half];
  };
  const parts: string[] = [];
  const tall = height / rows;
  const every = Math.ceil(13 / tall);
  if (labels) {
    labels.forEach((text, n) => {
      if (n % every === 0) parts.push(label(left - 6, top + (n + 0.5) * tall + 4, cutLabel(text), "end"));
    });
    parts.push(upright(12, top + height / 2, props.yLabel, muted));
  } else parts.push(yAxisSvg(frame, counting(axis(...ends(rows), top, top + height)), props.yLabel, false));
  if (!square || !labels) {
    parts.push(xAxisSvg(frame, counting(axis(...ends(columns), left, left + width)), props.xLabel));
    return parts.join("");
  }
  const wide = width / columns;
  const tight = isTight(labels, wide);
  const each = Math.ceil(13 / wide);
  labels.forEach((text, n) => {
    const x = left + (n + 0.5) * wide;
    if (!tight) parts.push(label(x, top + height + 17, cutLabel(text), "middle"));
    else if (n % each === 0) parts.push(upright(x + 4, top + height + 6, cutLabel(text), cssColor("ink"), "end"));
  });
  const under = tight ? labelRoom(labels) + 16 : 35;
  parts.push(label(left + width / 2, top + height + under, props.xLabel, "middle", muted));
  return parts.join("");
}

function cellWords(props: HeatProps, row: number, column: number): string {
  const { yLabel, xLabel, labels, numbers, square = false, cells } = props;
  const named = (what: string, n: number, labels?: string[]) =>
    `${what} ${numbers?.[n] ?? n}${labels ? `, ${labels[n]}` : ""}`;
  const words = `${named(yLabel, row, labels)}, ${named(xLabel, column, square ? labels : undefined)}`;
  return `${words}: ${formatNumber(cells.values[row * cells.shape[1]! + column])}`;
}

/** Return the range of the colors: 0 is the middle of a signed map, or its end where all values have one sign. */
function heatRange({ cells, limit, map = "signed" }: HeatProps): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of cells.values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (map === "amount" || low > high) return [0, limit ?? (high > 0 ? high : 1)];
  const size = limit ?? (Math.max(-low, high) || 1);
  return [low >= 0 ? 0 : -size, high <= 0 && low < 0 ? 0 : size];
}

/** Return a limit for the colors: three root mean squares of the finite values, or their greatest size if it is less. */
export function spread(...parts: ArrayLike<number>[]): number {
  const values = parts.flatMap((part) => Array.from(part)).filter(Number.isFinite);
  let [squares, most] = [0, 0];
  for (const value of values) {
    squares += value ** 2;
    most = Math.max(most, Math.abs(value));
  }
  return Math.min(3 * Math.sqrt(squares / Math.max(values.length, 1)), most) || 1;
}

function painted({ cells, map = "signed" }: HeatProps, range: [number, number]): HTMLCanvasElement {
  const [rows = 0, columns = 0] = cells.shape;
  const image = new ImageData(columns, rows);
  const table = new Uint32Array(colorTable(map).buffer);
  const pixels = new Uint32Array(image.data.buffer);
  cells.values.forEach((value, n) => {
    if (Number.isFinite(value)) pixels[n] = table[colorAt(map, range, value)]!;
  });
  return canvasOf(image);
}

function canvasOf(image: ImageData): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas;
}

/** Return a picture with whole pixels for each number, so many that no program that shows it blurs the edges. */
function enlarged(small: HTMLCanvasElement, width: number, height: number): string {
  const times = Math.max(1, Math.min(Math.ceil((3 * width) / small.width), Math.ceil((3 * height) / small.height), 40));
  const large = document.createElement("canvas");
  large.width = small.width * times;
  large.height = small.height * times;
  const context = large.getContext("2d")!;
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, large.width, large.height);
  return large.toDataURL("image/png");
}

export function heatSvg(props: HeatProps, width: number): string {
  const { svg, height } = mapSvg(props, width);
  return drawing(width, height + 38, props.title, [svg, barSvg(props, width, height + 6)]);
}

/** Draw several maps as one file: side by side, each with its title above, and one color bar below all. */
export function heatsSvg(heading: string, maps: HeatProps[], across: number, width = 1200): string {
  const wide = width / across;
  const drawn = maps.map((props) => ({ title: props.title, ...mapSvg(props, wide - 8) }));
  const tall = Math.max(...drawn.map(({ height }) => height)) + 26;
  const placed = drawn.map(
    ({ title, svg }, n) =>
      `<g transform="translate(${(n % across) * wide} ${Math.floor(n / across) * tall})">` +
      `${label(8, 12, title)}<g transform="translate(0 18)">${svg}</g></g>`,
  );
  const height = Math.ceil(maps.length / across) * tall;
  return drawing(width, height + 38, heading, [...placed, barSvg(maps[0]!, width, height + 6)]);
}

/** Draw the cells and axes of a map, from a picture of the cells or with one that no program blurs. */
function mapSvg(props: HeatProps, width: number, picture?: string): { svg: string; frame: Frame; height: number } {
  const { frame, height } = laidOut(props, width);
  const { left, top, width: wide } = frame;
  const tall = frame.height / props.cells.shape[0]!;
  const url = picture ?? enlarged(painted(props, heatRange(props)), wide, frame.height);
  const framed =
    props.framed === undefined
      ? ""
      : `<rect x="${left}" y="${top + props.framed * tall}" width="${wide}" height="${tall}" fill="none" stroke="${cssColor("c1")}" stroke-width="2"/>`;
  const rules = (props.rules ?? []).map(({ x, text }) => ruleSvg(props, frame, x, text)).join("");
  const image = `<image x="${left}" y="${top}" width="${wide}" height="${frame.height}" preserveAspectRatio="none" image-rendering="pixelated" href="${url}"/>`;
  return { svg: axesOf(props, frame) + image + framed + rules, frame, height };
}

function ruleSvg({ cells, numbers, square }: HeatProps, frame: Frame, row: number, text: string): string {
  const { left, top, width, height } = frame;
  const share = (row / (numbers?.[1] ?? 1) + 1) / cells.shape[0]!;
  const [x, y] = [left + share * width, top + share * height];
  const color = cssColor("bad");
  return (
    line(left, y, left + width, y, color, 1.5) +
    (square ? line(x, top, x, top + height, color, 1.5) : "") +
    haloed(left + width - 6, y + 14, text, "end")
  );
}

function barSvg(props: HeatProps, width: number, y: number): string {
  const range = heatRange(props);
  const wide = Math.min(200, 0.45 * width);
  const from = width - textWidth(formatNumber(range[1])) / 2 - 8 - wide;
  return [
    label(from - 8, y + 9, props.barLabel ?? "", "end", cssColor("muted")),
    `<image x="${from}" y="${y}" width="${wide}" height="10" preserveAspectRatio="none" href="${barUrl(props.map ?? "signed", range)}"/>`,
    ...barTicks(range, from, y + 10, wide),
  ].join("");
}

/** Write the numbers under a color bar: both ends, and round numbers between them where there is room. */
function barTicks([low, high]: [number, number], from: number, y: number, wide: number): string[] {
  const at = axis(low, high, from, from + wide);
  const shown = [low, high];
  const apart = (value: number) =>
    shown.every((other) => {
      const room = (textWidth(formatNumber(value)) + textWidth(formatNumber(other))) / 2 + 8;
      return Math.abs(at(value) - at(other)) >= room;
    });
  for (const tick of [0, ...at.ticks(4)]) if (tick > low && tick < high && apart(tick)) shown.push(tick);
  return shown.flatMap((value) => [
    line(at(value), y, at(value), y + 4, cssColor("muted")),
    label(at(value), y + 16, formatNumber(value), "middle"),
  ]);
}
