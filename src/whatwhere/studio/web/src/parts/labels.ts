/** Labels in a cloud of points: as many as have room, the most important first. */

export interface Label {
  point: number;
  text: string;
  /** Where the text begins, and the middle of its height. */
  x: number;
  y: number;
}

interface Area {
  left: number;
  right: number;
  low: number;
  high: number;
}

export interface LabelOptions {
  /** The points in the order of importance. */
  order: Iterable<number>;
  position(point: number): [number, number];
  text(point: number): string;
  measure(text: string): number;
  width: number;
  height: number;
  /** The radius of a point, and the height of a line. */
  radius: number;
  line: number;
  most: number;
  /** Few points: each is labelled, where there is no room over another label. */
  all?: boolean;
}

/** Return where labels are drawn: beside their points, none over another. */
export function placeLabels(options: LabelOptions): Label[] {
  const { order, position, width, height, radius, line, most, all = false } = options;
  const placed: Label[] = [];
  const taken: Area[] = [];
  const free = (area: Area) =>
    area.left >= 0 &&
    area.right <= width &&
    area.low >= 0 &&
    area.high <= height &&
    !taken.some(
      (other) => area.left < other.right && other.left < area.right && area.low < other.high && other.low < area.high,
    );
  let tries = 0;
  for (const point of order) {
    if (placed.length >= most || tries > 20 * most) break;
    const [x, y] = position(point);
    if (!(x >= 0 && x <= width && y >= 0 && y <= height)) continue;
    tries++;
    const text = options.text(point);
    const wide = options.measure(text);
    const gap = radius + 3;
    const beside: [number, number][] = [
      [x + gap, y],
      [x - gap - wide, y],
      [x - wide / 2, y - gap - line / 2],
      [x - wide / 2, y + gap + line / 2],
    ];
    const area = ([left, middle]: [number, number]): Area => ({
      left: left - 2,
      right: left + wide + 2,
      low: middle - line / 2,
      high: middle + line / 2,
    });
    // In a dense cloud the first place alone is tried: labels on all sides cannot be told apart.
    const found = (all ? beside : beside.slice(0, 1)).find((at) => free(area(at))) ?? (all ? beside[0] : undefined);
    if (!found) continue;
    taken.push(area(found));
    placed.push({ point, text, x: found[0], y: found[1] });
  }
  return placed;
}
