/** Drawings of one step: tokens on a plane with their trajectories, and the digits on a line. */

import { pageColor, seriesColor } from "../../colors";
import { placeLabels } from "../../parts/labels";
import { drawing, haloed, label, line, n, textWidth } from "../../parts/svg";
import { visibleToken } from "../../escape";
import type { Tensor } from "../../wire";

const EDGE = 40;
const FEW = 60;
const OPERATORS = new Set(["First", "Second", "Last", "Max", "Min"]);

export interface Scene {
  names: string[];
  groups: number[];
  /** Coordinates: (step, token, 2). */
  points: Tensor;
  /** The least and the greatest of each axis, over all steps. */
  low: [number, number];
  high: [number, number];
}

const GROUPS = ["other", "operators", "digits", "( ) ,"];
const SHAPES = ["●", "▲", "■", "◆"];

/** Find the ends of all steps: one scale for all, so that what moves is the tokens. */
export function scene(words: string[], points: Tensor): Scene {
  const { values } = points;
  const [low, high]: [[number, number], [number, number]] = [
    [0, 0],
    [0, 0],
  ];
  for (let k = 0; k < values.length; k++) {
    const axis = k % 2 ? 1 : 0;
    low[axis] = Math.min(low[axis], values[k]!);
    high[axis] = Math.max(high[axis], values[k]!);
  }
  return { names: words.map((word) => visibleToken(word)), groups: words.map(group), points, low, high };
}

function group(word: string): number {
  if (OPERATORS.has(word)) return 1;
  if (/^[0-9]$/.test(word)) return 2;
  return "(),".includes(word) ? 3 : 0;
}

export function mapSvg({ names, groups, points, low, high }: Scene, at: number, title: string, width = 640): string {
  const height = Math.round(Math.min(width * 0.8, 520));
  const count = points.shape[1]!;
  const scale = Math.min((width - 2 * EDGE) / (high[0] - low[0] || 1), (height - 2 * EDGE) / (high[1] - low[1] || 1));
  const x = (step: number, token: number) =>
    width / 2 + (points.values[(step * count + token) * 2]! - (low[0] + high[0]) / 2) * scale;
  const y = (step: number, token: number) =>
    height / 2 - (points.values[(step * count + token) * 2 + 1]! - (low[1] + high[1]) / 2) * scale;
  const parts: string[] = [];
  const few = count <= FEW;
  for (let token = 0; few && token < count; token++) {
    let path = "";
    for (let step = 0; step <= at; step++) path += `${step ? "L" : "M"}${n(x(step, token))} ${n(y(step, token))}`;
    parts.push(`<path d="${path}" fill="none" stroke="${seriesColor(groups[token]!)}" stroke-opacity="0.4"/>`);
  }
  for (let token = 0; token < count; token++) {
    const [px, py] = [x(at, token), y(at, token)];
    parts.push(label(px, py + 4, SHAPES[groups[token]!]!, "middle", seriesColor(groups[token]!)));
  }
  const placed = placeLabels({
    order: few ? Array.from({ length: count }, (_, token) => token) : [],
    position: (token) => [x(at, token), y(at, token)],
    text: (token) => names[token]!,
    measure: (text) => textWidth(text),
    width,
    height: height - 24, // the legend is below
    radius: 5,
    line: 14,
    most: FEW,
    all: true,
  });
  for (const { point, text, leader, ...found } of placed) {
    if (leader) parts.push(line(x(at, point), y(at, point), ...leader, pageColor("muted"), 0.7));
    parts.push(haloed(found.x, found.y + 4, text, "start"));
  }
  const used = [...new Set(groups)].sort();
  const wide = Math.min(110, (width - 8) / used.length);
  if (used.length > 1)
    used.forEach((each, k) =>
      parts.push(label(8 + wide * k, height - 8, `${SHAPES[each]} ${GROUPS[each]}`, "start", seriesColor(each))),
    );
  return drawing(width, height, title, parts, title ? 28 : 0);
}

export function lineSvg({ values }: Tensor, at: number, title: string, width = 640): string {
  return drawing(width, TALL, title, digitLine(values.slice(at * 10, at * 10 + 10), width), title ? 28 : 0);
}

/** Several such lines, each under its name. */
export function digitLinesSvg(
  lines: { name: string; points: ArrayLike<number> }[],
  title: string,
  width = 640,
): string {
  const step = TALL + 22;
  const parts = lines.map(
    ({ name, points }, k) =>
      `<g transform="translate(0 ${step * k})">${label(8, 16, name)}` +
      `<g transform="translate(0 16)">${digitLine(points, width).join("")}</g></g>`,
  );
  return drawing(width, step * lines.length, title, parts, title ? 28 : 0);
}

const TALL = 128;

function digitLine(points: ArrayLike<number>, width: number): string[] {
  const size = Math.max(...Array.from(points, Math.abs)) || 1;
  const middle = width / 2;
  const parts = [line(12, 70, width - 12, 70, pageColor("grid"), 2), line(middle, 62, middle, 78, pageColor("muted"))];
  // Neighbors on the line may coincide: labels alternate above and below.
  const order = Array.from({ length: 10 }, (_, digit) => digit).sort((a, b) => points[a]! - points[b]! || a - b);
  const apart = order.some((digit) => points[digit] !== points[0]);
  order.forEach((digit, k) => {
    const x = middle + (points[digit]! / size) * (middle - 24);
    const up = [34, 50, 98, 114][k % 4]!;
    if (apart)
      parts.push(line(x, up > 70 ? up - 12 : up + 3, x, 70, pageColor("grid")), label(x, up, String(digit), "middle"));
    parts.push(`<circle cx="${n(x)}" cy="70" r="5" fill="${seriesColor(2)}"/>`);
  });
  if (!apart) parts.push(label(middle, 50, "0 to 9: nothing is written yet", "middle", pageColor("muted")));
  return parts;
}
