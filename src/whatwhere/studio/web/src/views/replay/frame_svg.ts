/** Drawings of one step: tokens on a plane with their trajectories, and the digits on a line. */

import { upTo } from "../../numbers";
import { cssColor, cssSeries } from "../../colors";
import { visibleToken } from "../../escape";
import type { Sketch } from "../../parts/figure";
import { placeLabels } from "../../parts/labels";
import { circle, haloed, label, line, n, textWidth } from "../../parts/svg";
import type { Tensor } from "../../wire";

const EDGE = 40;
const FEW = 60;
const GROUPS = ["other", "operators", "digits", "( ) ,"];
const SHAPES = ["●", "▲", "■", "◆"];

function groupOf(word: string): number {
  if (["First", "Second", "Last", "Max", "Min"].includes(word)) return 1;
  if (/^[0-9]$/.test(word)) return 2;
  return "(),".includes(word) ? 3 : 0;
}

/** Return the least and the greatest of an axis over all steps, 0 among them: what moves is the tokens, not the scale. */
function endsOf({ values }: Tensor, axis: number): [number, number] {
  const own = Array.from(values).filter((_, k) => k % 2 === axis);
  const ends: [number, number] = [0, 0];
  for (const value of own) [ends[0], ends[1]] = [Math.min(ends[0], value), Math.max(ends[1], value)];
  return ends;
}

/** Draw tokens by their points, (step, token, 2), at one step. */
export function mapSketch(words: string[], points: Tensor, at: number, width: number): Sketch {
  const height = Math.round(Math.min(width * 0.8, 520));
  const count = points.shape[1]!;
  const [[left, right], [low, high]] = [endsOf(points, 0), endsOf(points, 1)];
  const scale = Math.min((width - 2 * EDGE) / (right - left || 1), (height - 2 * EDGE) / (high - low || 1));
  const spot = (step: number, token: number): [number, number] => {
    const k = (step * count + token) * 2;
    const [x, y] = [points.values[k]! - (left + right) / 2, points.values[k + 1]! - (low + high) / 2];
    return [width / 2 + x * scale, height / 2 - y * scale];
  };
  const groups = words.map(groupOf);
  const few = count <= FEW ? upTo(count) : [];
  const parts = few.map((token) => {
    const path = upTo(at + 1).map((step) => spot(step, token).map(n).join(" "));
    return `<path d="M${path.join("L")}" fill="none" stroke="${cssSeries(groups[token]!)}" stroke-opacity="0.4"/>`;
  });
  groups.forEach((group, token) => {
    const [x, y] = spot(at, token);
    parts.push(label(x, y + 4, SHAPES[group]!, "middle", cssSeries(group)));
  });
  const placed = placeLabels({
    order: few,
    position: (token) => spot(at, token),
    text: (token) => visibleToken(words[token]!),
    measure: textWidth,
    width,
    height: height - 24, // the legend is below
    radius: 5,
    line: 14,
    most: FEW,
    all: true,
  });
  for (const { point, text, leader, x, y } of placed) {
    if (leader) parts.push(line(...spot(at, point), ...leader, cssColor("muted"), 0.7));
    parts.push(haloed(x, y + 4, text, "start"));
  }
  const used = [...new Set(groups)].sort();
  const wide = Math.min(110, (width - 8) / used.length);
  if (used.length > 1)
    used.forEach((group, k) =>
      parts.push(label(8 + wide * k, height - 8, `${SHAPES[group]} ${GROUPS[group]}`, "start", cssSeries(group))),
    );
  return { height, parts };
}

export function digitLine(points: ArrayLike<number>, width: number): Sketch {
  const size = Math.max(...Array.from(points, Math.abs)) || 1;
  const middle = width / 2;
  const parts = [line(12, 70, width - 12, 70, cssColor("grid"), 2), line(middle, 62, middle, 78, cssColor("muted"))];
  // Neighbors on the line may coincide: labels alternate above and below.
  const order = upTo(10).sort((a, b) => points[a]! - points[b]! || a - b);
  const apart = order.some((digit) => points[digit] !== points[0]);
  order.forEach((digit, k) => {
    const x = middle + (points[digit]! / size) * (middle - 24);
    const up = [34, 50, 98, 114][k % 4]!;
    if (apart)
      parts.push(line(x, up > 70 ? up - 12 : up + 3, x, 70, cssColor("grid")), label(x, up, String(digit), "middle"));
    parts.push(circle(x, 70, 5, cssSeries(2)));
  });
  if (!apart) parts.push(label(middle, 50, "0 to 9: nothing is written yet", "middle", cssColor("muted")));
  return { height: 128, parts };
}
