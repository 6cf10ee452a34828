/** Draw many points into pixels by hand: faster than WebGL in software, the same everywhere, and nothing to install. */

export interface Points {
  x: Float32Array;
  y: Float32Array;
  /** Which of the colors each point has. */
  group: Uint8Array;
}

/** The group of points that are drawn behind all others, whatever their order. */
export const BEHIND = 255;

export interface Box {
  left: number;
  right: number;
  bottom: number;
  top: number;
}

/** What part of the plane is seen: its middle, and pixels for each unit. */
export interface Sight {
  x: number;
  y: number;
  scale: number;
}

/** What a canvas is drawn in: pixels for each of the page's, and the zoom. */
/** Draw points where they are; where several fall on a pixel, a random one gives the color. */
export function drawPoints(
  image: ImageData,
  points: Points,
  sight: Sight,
  colors: Uint32Array,
  ground: number,
  { ratio, zoom }: { ratio: number; zoom: number },
): void {
  const { width, height } = image;
  const { x, y, group } = points;
  const [count, groups] = [new Uint16Array(width * height), new Uint8Array(width * height)];
  const left = width / 2 - sight.x * sight.scale;
  const top = height / 2 + sight.y * sight.scale;
  const size = Math.round(ratio * radius(before(points), zoom));
  const shape = disc(size);
  const behind = disc(Math.round(ratio * radius(x.length, zoom)));
  let most = 1;
  for (let n = 0; n < x.length; n++) {
    const px = Math.floor(left + x[n]! * sight.scale);
    const py = Math.floor(top - y[n]! * sight.scale);
    if (px < -size || py < -size || px >= width + size || py >= height + size) continue;
    const edge = px < size || py < size || px >= width - size || py >= height - size;
    const here = py * width + px;
    const own = group[n]!;
    // Reservoir sampling: the k-th point on a pixel takes it with probability 1 / k.
    const chance = Math.imul(n ^ 0x9e3779b9, 0x85ebca6b) >>> 0;
    const cells = own === BEHIND ? behind : shape;
    for (let k = 0; k < cells.length; k += 2) {
      const dx = cells[k]!;
      const dy = cells[k + 1]!;
      if (edge && (px + dx < 0 || px + dx >= width || py + dy < 0 || py + dy >= height)) continue;
      const at = here + dx + dy * width;
      if (own === BEHIND) {
        if (count[at] === 0) [count[at], groups[at]] = [1, BEHIND];
        continue;
      }
      const seen = (groups[at] === BEHIND ? 0 : count[at]!) + 1;
      if (seen < 65535) count[at] = seen;
      if (seen > most) most = seen;
      if (seen === 1 || chance * seen < 4294967296) groups[at] = own;
    }
  }
  // Each color is blended with the background: its opacity grows with the logarithm of the count.
  const shares = new Uint16Array(most + 1);
  for (let n = 1; n <= most; n++)
    shares[n] = Math.round(256 * (most === 1 ? 0.9 : 0.45 + (0.55 * Math.log(n)) / Math.log(most)));
  const [low, middle] = [ground & 0xff00ff, (ground >>> 8) & 0xff];
  const pixels = new Uint32Array(image.data.buffer).fill(ground);
  for (let n = 0; n < pixels.length; n++) {
    if (count[n] === 0) continue;
    const share = shares[count[n]!]!;
    const color = colors[groups[n]!]!;
    const ends = (((color & 0xff00ff) * share + low * (256 - share)) >>> 8) & 0xff00ff;
    const green = (((color >>> 8) & 0xff) * share + middle * (256 - share)) & 0xff00;
    pixels[n] = 0xff000000 | ends | green;
  }
}

/** Return the point nearest to a position, of those within a distance. */
export function nearest({ x, y }: Points, left: number, up: number, within: number): number | null {
  let [best, least]: [number | null, number] = [null, within ** 2];
  for (let n = 0; n < x.length; n++) {
    const away = (x[n]! - left) ** 2 + (y[n]! - up) ** 2;
    if (away <= least) [best, least] = [n, away];
  }
  return best;
}

export function pointsInside({ x, y }: Points, { left, right, bottom, top }: Box): number[] {
  const inside: number[] = [];
  for (let n = 0; n < x.length; n++)
    if (x[n]! >= left && x[n]! <= right && y[n]! >= bottom && y[n]! <= top) inside.push(n);
  return inside;
}

export function whole(points: Points, width: number, height: number): Sight {
  const { left, right, bottom, top } = bounds(points);
  const scale = 0.94 * Math.min(width / (right - left || 1), height / (top - bottom || 1));
  return { x: (left + right) / 2, y: (bottom + top) / 2, scale };
}

/** Return #rrggbb as a pixel, in the order of bytes that canvases have on every machine that runs a browser. */
export function pixel(color: string): number {
  const value = Number.parseInt(color.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

function bounds({ x, y }: Points): Box {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let n = 0; n < x.length; n++) {
    if (x[n]! < left) left = x[n]!;
    if (x[n]! > right) right = x[n]!;
    if (y[n]! < bottom) bottom = y[n]!;
    if (y[n]! > top) top = y[n]!;
  }
  return left > right ? { left: 0, right: 0, bottom: 0, top: 0 } : { left, right, bottom, top };
}

export function before({ group }: Points): number {
  return group.reduce((sum, own) => sum + Number(own !== BEHIND), 0);
}

/** Return the radius of a point in pixels: larger the fewer the points, and growing with the root of the zoom. */
export function radius(count: number, zoom = 1): number {
  const base = count > 20_000 ? 1 : count > 2_000 ? 2 : count > 200 ? 3 : 5;
  return Math.max(1, Math.min(base * Math.sqrt(Math.max(zoom, 1)), 8));
}

function disc(size: number): Int32Array {
  const cells: number[] = [];
  for (let y = -size; y <= size; y++) {
    for (let x = -size; x <= size; x++) if (x * x + y * y <= size * size) cells.push(x, y);
  }
  return Int32Array.from(cells);
}
