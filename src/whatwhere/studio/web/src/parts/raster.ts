/** Draw many points into pixels by hand: faster than WebGL in software, the same everywhere, and nothing to install. */

export interface Points {
  x: Float32Array;
  y: Float32Array;
  /** Which of the colors each point has; without, the first. */
  group: Uint8Array | null;
}

/** The group of points that are drawn behind all others, whatever their order. */
export const BEHIND = 255;

/** A rectangle of the plane. */
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

/** Draw points where they are; where several fall on a pixel, a random one gives the color. */
export class Raster {
  #count = new Uint16Array(0);
  #group = new Uint8Array(0);

  draw(
    image: ImageData,
    points: Points,
    sight: Sight,
    colors: Uint32Array,
    ground: number,
    ratio: number,
    zoom = 1,
  ): void {
    const { width, height } = image;
    if (this.#count.length !== width * height) {
      this.#count = new Uint16Array(width * height);
      this.#group = new Uint8Array(width * height);
    } else {
      this.#count.fill(0);
      this.#group.fill(0);
    }
    const most = this.#gather(width, height, points, sight, ratio, zoom);
    this.#paint(new Uint32Array(image.data.buffer), colors, ground, most);
  }

  #gather(width: number, height: number, points: Points, sight: Sight, ratio: number, zoom: number): number {
    const { x, y, group } = points;
    const count = this.#count;
    const groups = this.#group;
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
      const own = group === null ? 0 : group[n]!;
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
    return most;
  }

  /** Blend each color with the background: its opacity grows with the logarithm of the count. */
  #paint(pixels: Uint32Array, colors: Uint32Array, ground: number, most: number): void {
    const shares = new Uint16Array(most + 1);
    for (let n = 1; n <= most; n++)
      shares[n] = Math.round(256 * (most === 1 ? 0.9 : 0.45 + (0.55 * Math.log(n)) / Math.log(most)));
    const low = ground & 0xff00ff;
    const middle = (ground >>> 8) & 0xff;
    for (let n = 0; n < pixels.length; n++) {
      const seen = this.#count[n]!;
      if (seen === 0) {
        pixels[n] = ground;
        continue;
      }
      const share = shares[seen]!;
      const color = colors[this.#group[n]!]!;
      const ends = (((color & 0xff00ff) * share + low * (256 - share)) >>> 8) & 0xff00ff;
      const green = (((color >>> 8) & 0xff) * share + middle * (256 - share)) & 0xff00;
      pixels[n] = 0xff000000 | ends | green;
    }
  }
}

/** A grid over the points, built once, which finds the point nearest to a position. */
export class Grid {
  readonly #points: Points;
  readonly #start: Uint32Array;
  readonly #members: Uint32Array;
  readonly #side: number;
  readonly box: { x: number; y: number; width: number; height: number };

  constructor(points: Points) {
    this.#points = points;
    this.box = bounds(points);
    this.#side = Math.max(1, Math.min(1024, Math.round(Math.sqrt(points.x.length / 2))));
    this.#start = new Uint32Array(this.#side ** 2 + 1);
    this.#members = new Uint32Array(points.x.length);
    const cells = Uint32Array.from(points.x, (_, n) => this.#cell(points.x[n]!, points.y[n]!));
    for (const cell of cells) this.#start[cell + 1]!++;
    for (let n = 0; n < this.#side ** 2; n++) this.#start[n + 1]! += this.#start[n]!;
    const next = this.#start.slice();
    for (let n = 0; n < cells.length; n++) this.#members[next[cells[n]!]!++] = n;
  }

  nearest(x: number, y: number, within: number): number | null {
    let best: number | null = null;
    let least = within ** 2;
    this.#each(x - within, y - within, x + within, y + within, (n) => {
      const away = (this.#points.x[n]! - x) ** 2 + (this.#points.y[n]! - y) ** 2;
      if (away <= least) [best, least] = [n, away];
    });
    return best;
  }

  inside({ left, bottom, right, top }: Box): number[] {
    const inside: number[] = [];
    this.#each(left, bottom, right, top, (n) => {
      const [x, y] = [this.#points.x[n]!, this.#points.y[n]!];
      if (x >= left && x <= right && y >= bottom && y <= top) inside.push(n);
    });
    return inside.sort((a, b) => a - b);
  }

  #each(left: number, bottom: number, right: number, top: number, visit: (n: number) => void): void {
    const [first, last] = [this.#cell(left, bottom), this.#cell(right, top)];
    const side = this.#side;
    for (let row = Math.floor(first / side); row <= Math.floor(last / side); row++) {
      for (let column = first % side; column <= last % side; column++) {
        const cell = row * side + column;
        for (let k = this.#start[cell]!; k < this.#start[cell + 1]!; k++) visit(this.#members[k]!);
      }
    }
  }

  #cell(x: number, y: number): number {
    const cell = (value: number, low: number, size: number) =>
      Math.min(this.#side - 1, Math.max(0, Math.floor(((value - low) / size) * this.#side)));
    return cell(y, this.box.y, this.box.height) * this.#side + cell(x, this.box.x, this.box.width);
  }
}

/** Show all points, with a margin. */
export function whole(box: Grid["box"], width: number, height: number): Sight {
  const scale = 0.94 * Math.min(width / box.width, height / box.height);
  return { x: box.x + box.width / 2, y: box.y + box.height / 2, scale };
}

/** Return #rrggbb as a pixel, in the order of bytes that canvases have on every machine that runs a browser. */
export function pixel(color: string): number {
  const value = Number.parseInt(color.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

function bounds({ x, y }: Points): Grid["box"] {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let n = 0; n < x.length; n++) {
    if (x[n]! < left) left = x[n]!;
    if (x[n]! > right) right = x[n]!;
    if (y[n]! < bottom) bottom = y[n]!;
    if (y[n]! > top) top = y[n]!;
  }
  if (left > right) return { x: -0.5, y: -0.5, width: 1, height: 1 };
  return { x: left, y: bottom, width: right - left || 1, height: top - bottom || 1 };
}

/** Return how many points are not behind the others. */
export function before({ x, group }: Points): number {
  return group === null ? x.length : group.reduce((sum, own) => sum + Number(own !== BEHIND), 0);
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
