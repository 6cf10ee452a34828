/** Labels in a cloud of points: as many as have room, the most important first. */

interface Label {
  point: number;
  text: string;
  /** Where the text begins, and the middle of its height. */
  x: number;
  y: number;
  /** End of a line from the point to a label that is not beside it. */
  leader?: [number, number];
}

interface Area {
  left: number;
  right: number;
  low: number;
  high: number;
}

interface LabelOptions {
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
  /** Few points: each is labelled, away from it where there is no room beside it. */
  all?: boolean;
  /** Where something else is written. */
  occupied?: Area[];
}

/** Distances of labels that have no room beside their points. */
const AWAY = [22, 36, 52, 70];

/** Return where labels are drawn: beside their points, none over another; where all are drawn, over no point either. */
export function placeLabels(options: LabelOptions): Label[] {
  const { position, width, height, radius, line, most, all = false } = options;
  const order = all ? [...options.order] : options.order;
  const placed: Label[] = [];
  const { occupied = [] } = options;
  const points = all
    ? Array.from(order, (point) => position(point)).map(([x, y]) => ({
        left: x - radius,
        right: x + radius,
        low: y - radius,
        high: y + radius,
      }))
    : [];
  const taken: Area[] = [...occupied, ...points];
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
    const found = (all ? beside : beside.slice(0, 1)).find((at) => free(area(at)));
    const far = found || !all ? undefined : around(x, y, wide).find((at) => free(area(at)));
    const [left, middle] = found ?? far ?? [NaN, NaN];
    if (Number.isNaN(left)) continue;
    taken.push(area([left, middle]));
    const leader: [number, number] = [Math.min(Math.max(x, left), left + wide), middle];
    placed.push({ point, text, x: left, y: middle, ...(far && { leader }) });
  }
  return placed;
}

/** Return places around a point for a label of some width, the nearest first. */
function around(x: number, y: number, wide: number): [number, number][] {
  return AWAY.flatMap((away) =>
    Array.from({ length: 12 }, (_, k): [number, number] => {
      const angle = (2 * Math.PI * k) / 12;
      const [across, up] = [Math.cos(angle), Math.sin(angle)];
      return [x + away * across + (wide / 2) * (across - 1), y + away * up];
    }),
  );
}
