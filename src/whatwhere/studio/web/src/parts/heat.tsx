/** Heat maps: one cell for each number, read by mouse or by arrow keys, with axes and a color bar. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colorTable, cssColor, type MapName } from "../colors";
import { useWidth } from "../hooks";
import { fixed, formatNumber } from "../numbers";
import type { Numbers } from "../wire";
import { announce } from "./announce";
import { axis, counting, type Frame, tickRoom, UNDER, xAxisSvg, yAxisSvg } from "./axes";
import { drawing, label, line, textWidth, upright } from "./svg";
import type { Column } from "./table";

export interface HeatProps {
  title: string;
  values: Numbers;
  rows: number;
  columns: number;
  /** What a row is, for the reader of one cell. */
  rowName(row: number): string;
  columnName(column: number): string;
  /** Written beside the rows and below the columns, instead of numbers. */
  rowLabels?: string[];
  columnLabels?: string[];
  /** The numbers of the rows and columns, evenly spaced; without, 0, 1, 2, ... */
  y?: ArrayLike<number>;
  x?: ArrayLike<number>;
  xLabel: string;
  yLabel: string;
  /** What the colors are. */
  barLabel?: string;
  map: MapName;
  /** The number at the ends of the colors; without, the greatest size among the values. */
  limit?: number;
  /** The numbers at both ends of the colors, whatever the values. */
  range?: [number, number];
  /** A row that is framed. */
  framed?: number;
  /** Whether the color bar is left to the figure, as where many maps share one. */
  barless?: boolean;
  cell?: number;
  /** Whether rows and columns are the same things, so that cells are square. */
  square?: boolean;
}

export function Heat(props: HeatProps) {
  const { title, values, rows, columns } = props;
  const [holder, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<[number, number] | null>(null);
  const range = useMemo(() => heatRange(props), [values, props.limit, props.map, props.range]);
  const { frame, height } = useMemo(() => laidOut(props, Math.max(width, 160)), [props, width]);
  const wide = Math.max(width, 160);
  const axes = useMemo(() => axesOf(props, frame), [props, frame]);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !width) return;
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, canvas.current!.width, canvas.current!.height);
    context.drawImage(painted(props, range), 0, 0, canvas.current!.width, canvas.current!.height);
  }, [values, frame, range]);
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
    const [row, column] = read((at?.[0] ?? 0) + (at ? by[0]! : 0), (at?.[1] ?? 0) + (at ? by[1]! : 0));
    announce(cellWords(props, row, column));
  };
  const point = (event: PointerEvent) => {
    const area = canvas.current!.getBoundingClientRect();
    const row = Math.floor(((event.clientY - area.top) / area.height) * rows);
    read(row, Math.floor(((event.clientX - area.left) / area.width) * columns));
  };
  const words = `${title}. ${rows} rows and ${columns} columns, from ${formatNumber(range[0])} to ${formatNumber(range[1])}. Arrow keys read the cells.`;
  const share = (part: number, all: number) => `${(100 * part) / all}%`;
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
        style={{ aspectRatio: `${wide} / ${height}` }}
      >
        <svg viewBox={`0 0 ${wide} ${height}`} aria-hidden="true" dangerouslySetInnerHTML={{ __html: axes }} />
        <canvas
          ref={canvas}
          width={Math.max(Math.round(frame.width * devicePixelRatio), 1)}
          height={Math.max(Math.round(frame.height * devicePixelRatio), 1)}
          style={{
            left: share(frame.left, wide),
            top: share(frame.top, height),
            width: share(frame.width, wide),
            height: share(frame.height, height),
          }}
          onPointerMove={point}
          onPointerLeave={() => setAt(null)}
        />
        {props.framed !== undefined && (
          <i
            class="framed"
            style={{
              left: share(frame.left, wide),
              top: share(frame.top + (frame.height * props.framed) / rows, height),
              width: share(frame.width, wide),
              height: share(frame.height / rows, height),
            }}
          />
        )}
        {at && <Tip props={props} at={at} frame={frame} size={[wide, height]} />}
      </div>
      {!props.barless && (
        <p class="under">
          <span />
          <Bar map={props.map} range={range} text={props.barLabel} />
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

/** The number of one cell, beside it. */
function Tip({ props, at: [row, column], frame, size: [width, height] }: TipProps) {
  const x = frame.left + ((column + 0.5) / props.columns) * frame.width;
  const y = frame.top + ((row + 0.5) / props.rows) * frame.height;
  const side =
    x > width / 2 ? { right: `${(100 * (width - x + 12)) / width}%` } : { left: `${(100 * (x + 12)) / width}%` };
  return (
    <div class="tip" aria-hidden="true" style={{ ...side, top: `${(100 * y) / height}%` }}>
      <bdi>{cellWords(props, row, column)}</bdi>
    </div>
  );
}

/** The colors between two numbers; of a signed map those alone that there are. */
export function Bar({ map, range, text }: { map: MapName; range: [number, number]; text?: string | undefined }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    canvas.current?.getContext("2d")?.putImageData(barImage(map, range), 0, 0);
  }, [map, range[0], range[1]]);
  return (
    <span class="bar">
      {text} {formatNumber(range[0])} <canvas ref={canvas} width={256} height={1} aria-hidden="true" />{" "}
      {formatNumber(range[1])}
    </span>
  );
}

function barImage(map: MapName, range: [number, number]): ImageData {
  const [table, image] = [colorTable(map), new ImageData(256, 1)];
  for (let n = 0; n < 256; n++) {
    const at = 4 * colorAt(map, range, range[0] + (n / 255) * (range[1] - range[0]));
    image.data.set(table.subarray(at, at + 4), 4 * n);
  }
  return image;
}

/** Return which of 256 colors a number has: 0 is in the middle of a signed map. */
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
  const { rows, columns, rowLabels, columnLabels, cell = 22 } = props;
  const coordinates = props.y ?? { length: 2, 0: 0, 1: rows - 1 };
  const tall = Math.max(rows * Math.min(cell, Math.max(1, 480 / rows)), 40);
  const left = rowLabels
    ? labelRoom(rowLabels) + 22
    : tickRoom([coordinates[coordinates.length - 1]!], props.yLabel, tall);
  const across = Math.max(width - left - 10, 40);
  const side = Math.min(across, Math.max(tall, 240), 480);
  const frame = { left, top: 6, width: props.square ? side : across, height: props.square ? side : tall };
  const under = columnLabels && isTight(columnLabels, frame.width / columns) ? labelRoom(columnLabels) + 22 : UNDER;
  return { frame, height: frame.top + frame.height + under };
}

/** Return whether labels have no room side by side. */
function isTight(labels: string[], cell: number): boolean {
  return labels.some((text) => textWidth(cutLabel(text)) > cell - 6);
}

function axesOf(props: HeatProps, frame: Frame): string {
  const muted = cssColor("muted");
  const { left, top, width, height } = frame;
  const { rows, columns, rowLabels, columnLabels } = props;
  const ends = (count: number, numbers?: ArrayLike<number>): [number, number] => {
    const half = numbers && count > 1 ? (numbers[1]! - numbers[0]!) / 2 : 0.5;
    return [(numbers?.[0] ?? 0) - half, (numbers?.[count - 1] ?? count - 1) + half];
  };
  const parts: string[] = [];
  const tall = height / rows;
  const every = Math.ceil(13 / tall);
  if (rowLabels) {
    rowLabels.forEach((text, n) => {
      if (n % every === 0) parts.push(label(left - 6, top + (n + 0.5) * tall + 4, cutLabel(text), "end"));
    });
    parts.push(upright(12, top + height / 2, props.yLabel, muted));
  } else parts.push(yAxisSvg(frame, counting(axis(...ends(rows, props.y), top, top + height)), props.yLabel, false));
  if (!columnLabels) {
    parts.push(xAxisSvg(frame, counting(axis(...ends(columns, props.x), left, left + width)), props.xLabel));
    return parts.join("");
  }
  const wide = width / columns;
  const tight = isTight(columnLabels, wide);
  const each = Math.ceil(13 / wide);
  columnLabels.forEach((text, n) => {
    const x = left + (n + 0.5) * wide;
    if (!tight) parts.push(label(x, top + height + 17, cutLabel(text), "middle"));
    else if (n % each === 0) parts.push(upright(x + 4, top + height + 6, cutLabel(text), cssColor("ink"), "end"));
  });
  const under = tight ? labelRoom(columnLabels) + 16 : 35;
  parts.push(label(left + width / 2, top + height + under, props.xLabel, "middle", muted));
  return parts.join("");
}

function cellWords({ values, columns, rowName, columnName }: HeatProps, row: number, column: number): string {
  return `${rowName(row)}, ${columnName(column)}: ${formatNumber(values[row * columns + column])}`;
}

/** Return the range of the colors: of a signed map, 0 is its middle, or its end where all values have one sign. */
export function heatRange({
  values,
  limit,
  map,
  range,
}: Pick<HeatProps, "values" | "limit" | "map" | "range">): [number, number] {
  if (range) return range;
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  if (map === "signed") {
    const size = limit ?? (Math.max(-low, high) || 1);
    return [low >= 0 ? 0 : -size, high <= 0 && low < 0 ? 0 : size];
  }
  return [low, limit ?? (high > low ? high : low + 1)];
}

/** Return a limit for the colors: three root mean squares of the finite values, or their greatest size if it is less. */
export function spread(...parts: ArrayLike<number>[]): number {
  let squares = 0;
  let count = 0;
  let most = 0;
  for (const values of parts) {
    for (let n = 0; n < values.length; n++) {
      if (!Number.isFinite(values[n])) continue;
      squares += values[n]! ** 2;
      most = Math.max(most, Math.abs(values[n]!));
      count++;
    }
  }
  return Math.min(3 * Math.sqrt(squares / Math.max(count, 1)), most) || 1;
}

/** Return the columns of a table of the same numbers, whose rows are numbered as the map's. */
export function heatColumns({ values, columns }: Pick<HeatProps, "values" | "columns">): Column<number>[] {
  return Array.from({ length: columns }, (_, column) => ({
    title: String(column),
    numeric: true,
    value: (row) => values[row * columns + column]!,
    cell: (row) => fixed(values[row * columns + column]!, 4),
  }));
}

/** Paint one pixel for each number; what is not finite stays clear. */
function painted({ values, rows, columns, map }: HeatProps, range: [number, number]): HTMLCanvasElement {
  const image = new ImageData(columns, rows);
  const table = new Uint32Array(colorTable(map).buffer);
  const pixels = new Uint32Array(image.data.buffer);
  for (let n = 0; n < pixels.length; n++) {
    if (Number.isFinite(values[n])) pixels[n] = table[colorAt(map, range, values[n]!)]!;
  }
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

/** Draw the map as a file: with a heading above, axes, and a color bar below. */
export function heatSvg(props: HeatProps, width = 720): string {
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

/** Return the cells and axes of a map, without a heading, and how tall they are. */
function mapSvg(props: HeatProps, width: number): { svg: string; height: number } {
  const { frame, height } = laidOut(props, width);
  const picture = enlarged(painted(props, heatRange(props)), frame.width, frame.height);
  const tall = frame.height / props.rows;
  const framed =
    props.framed === undefined
      ? ""
      : `<rect x="${frame.left}" y="${frame.top + props.framed * tall}" width="${frame.width}" height="${tall}" fill="none" stroke="${cssColor("c1")}" stroke-width="2"/>`;
  const image = `<image x="${frame.left}" y="${frame.top}" width="${frame.width}" height="${frame.height}" preserveAspectRatio="none" image-rendering="pixelated" href="${picture}"/>`;
  return { svg: axesOf(props, frame) + image + framed, height };
}

function barSvg(props: HeatProps, width: number, y: number): string {
  const range = heatRange(props);
  const bar = canvasOf(barImage(props.map, range)).toDataURL("image/png");
  const wide = Math.min(200, 0.45 * width);
  const from = width - textWidth(formatNumber(range[1])) / 2 - 8 - wide;
  return [
    label(from - 8, y + 9, props.barLabel ?? "", "end", cssColor("muted")),
    `<image x="${from}" y="${y}" width="${wide}" height="10" preserveAspectRatio="none" href="${bar}"/>`,
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
