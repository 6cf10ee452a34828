/** Heat maps on a canvas: one cell for each number, read by mouse or by arrow keys, with a color bar. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colorTable, type MapName, pageColor } from "../colors";
import { useTheme, useWidth } from "../hooks";
import { fixed, formatNumber } from "../numbers";
import type { Numbers } from "../wire";
import { announce } from "./announce";
import { drawing, label } from "./svg";
import type { Column } from "./table";

export interface HeatProps {
  title: string;
  values: Numbers;
  rows: number;
  columns: number;
  /** What a row is, for the reader of one cell. */
  rowName(row: number): string;
  columnName(column: number): string;
  /** Written beside the rows, if there is room. */
  rowLabels?: string[];
  xLabel: string;
  map: MapName;
  /** The number at the ends of the colors; without, the greatest size among the values. */
  limit?: number;
  cell?: number;
}

export function Heat(props: HeatProps) {
  const { title, values, rows, columns, rowLabels, xLabel, cell = 22 } = props;
  const [holder, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const [at, setAt] = useState<[number, number] | null>(null);
  const range = useMemo(() => heatRange(props), [values, props.limit, props.map]);
  const height = Math.max(rows * Math.min(cell, Math.max(1, 480 / rows)), 40);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !width) return;
    context.imageSmoothingEnabled = false;
    context.drawImage(painted(props, range), 0, 0, canvas.current!.width, canvas.current!.height);
  }, [values, width, height, range, theme]);
  const read = (row: number, column: number) => {
    const here: [number, number] = [Math.min(Math.max(row, 0), rows - 1), Math.min(Math.max(column, 0), columns - 1)];
    setAt(here);
    return here;
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
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
  return (
    <div class="heat">
      <div class="cells">
        {rowLabels && (
          <ol class="labels" aria-hidden="true" style={{ height: `${height}px` }}>
            {rowLabels.map((text, n) => (
              <li key={n}>
                <bdi>{text}</bdi>
              </li>
            ))}
          </ol>
        )}
        <div class="grow" ref={holder}>
          <div
            class="chart"
            role="application"
            aria-roledescription="heat map"
            aria-label={words}
            tabIndex={0}
            onKeyDown={keys}
          >
            <canvas
              ref={canvas}
              width={Math.max(width * devicePixelRatio, 1)}
              height={height * devicePixelRatio}
              style={{ width: "100%", height: `${height}px`, display: "block" }}
              onPointerMove={point}
              onPointerLeave={() => setAt(null)}
            />
          </div>
        </div>
      </div>
      <p class="under">
        <span>{at ? cellWords(props, ...at) : xLabel}</span>
        <Bar map={props.map} range={range} />
      </p>
    </div>
  );
}

export function Bar({ map, range }: { map: MapName; range: [number, number] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    context?.putImageData(new ImageData(colorTable(map) as Uint8ClampedArray<ArrayBuffer>, 256, 1), 0, 0);
  }, [map]);
  return (
    <span class="bar">
      {formatNumber(range[0])} <canvas ref={canvas} width={256} height={1} aria-hidden="true" />{" "}
      {formatNumber(range[1])}
    </span>
  );
}

function cellWords({ values, columns, rowName, columnName }: HeatProps, row: number, column: number): string {
  return `${rowName(row)}, ${columnName(column)}: ${formatNumber(values[row * columns + column])}`;
}

/** Return the range of the colors: symmetric about 0 for signed maps, else from least to greatest. */
export function heatRange({ values, limit, map }: Pick<HeatProps, "values" | "limit" | "map">): [number, number] {
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
    return [-size, size];
  }
  return [low, limit ?? (high > low ? high : low + 1)];
}

/** Return a limit for the colors: three root mean squares of the finite values. */
export function spread(...parts: ArrayLike<number>[]): number {
  let squares = 0;
  let count = 0;
  for (const values of parts) {
    for (let n = 0; n < values.length; n++) {
      if (!Number.isFinite(values[n])) continue;
      squares += values[n]! ** 2;
      count++;
    }
  }
  return 3 * Math.sqrt(squares / Math.max(count, 1)) || 1;
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
function painted({ values, rows, columns, map }: HeatProps, [low, high]: [number, number]): HTMLCanvasElement {
  const image = new ImageData(columns, rows);
  const table = new Uint32Array(colorTable(map).buffer);
  const pixels = new Uint32Array(image.data.buffer);
  for (let n = 0; n < pixels.length; n++) {
    const share = (values[n]! - low) / (high - low);
    if (Number.isFinite(share)) pixels[n] = table[Math.min(255, Math.max(0, Math.round(share * 255)))]!;
  }
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas;
}

export function heatSvg(props: HeatProps, width = 720): string {
  const left = props.rowLabels ? 110 : 8;
  const cell = Math.min(props.cell ?? 22, Math.max(1, 480 / props.rows));
  const height = props.rows * cell;
  const range = heatRange(props);
  const image = painted(props, range).toDataURL("image/png");
  const every = Math.ceil(12 / cell);
  const labels = (props.rowLabels ?? []).map((text, n) =>
    n % every ? "" : label(left - 8, (n + 0.7) * cell, text, "end"),
  );
  const bar = document.createElement("canvas");
  bar.width = 256;
  bar.height = 1;
  bar
    .getContext("2d")!
    .putImageData(new ImageData(colorTable(props.map) as Uint8ClampedArray<ArrayBuffer>, 256, 1), 0, 0);
  return drawing(width, height + 34, props.title, [
    ...labels,
    `<image x="${left}" y="0" width="${width - left - 8}" height="${height}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${image}"/>`,
    label(left, height + 22, props.xLabel, "start", pageColor("muted")),
    `<image x="${width - 220}" y="${height + 12}" width="120" height="10" preserveAspectRatio="none" href="${bar.toDataURL("image/png")}"/>`,
    label(width - 226, height + 22, formatNumber(range[0]), "end"),
    label(width - 94, height + 22, formatNumber(range[1])),
  ]);
}
