/** Horizontal bars with a name and a number each. */

import { pageColor, seriesColor } from "../colors";
import { box, drawing, label, textWidth } from "./svg";

export interface Bar {
  name: string;
  value: number;
  text: string;
}

/** Draw bars on an axis from 0 to `most`. */
export function Bars({ bars, most }: { bars: Bar[]; most: number }) {
  return (
    <ol class="bars">
      {bars.map(({ name, value, text }, n) => (
        <li key={n}>
          <span class="name">
            <bdi>{name}</bdi>
          </span>
          <span class="track" aria-hidden="true">
            <i style={{ width: `${(100 * value) / (most || 1)}%`, background: "var(--c1)" }} />
          </span>
          <span class="value">{text}</span>
          <span />
        </li>
      ))}
    </ol>
  );
}

export function barsSvg(title: string, bars: Bar[], most: number, width = 520): string {
  const rows = bars.map(({ name, value, text }) => ({ name, shares: [value / (most || 1)], text }));
  return drawing(width, 16 + BAR * rows.length, title, barRows(rows, [seriesColor(1)], 0, 4, width));
}

/** The height of a row of bars. */
export const BAR = 22;

/** A name, the parts of a bar, as shares of the longest, and a text behind it. */
export interface BarRow {
  name: string;
  shares: number[];
  text: string;
}

/** Draw rows of bars into so much width: names before them, texts behind, and a color for each part. */
export function barRows(rows: BarRow[], colors: string[], left: number, top: number, width: number): string[] {
  const before = 12 + Math.max(0, ...rows.map(({ name }) => textWidth(name)));
  const behind = 14 + Math.max(0, ...rows.map(({ text }) => textWidth(text)));
  const room = Math.max(width - before - behind, 20);
  return rows.flatMap(({ name, shares, text }, n) => {
    let at = left + before;
    const boxes = shares.map((share, part) => {
      const drawn = box(at, top + 3 + BAR * n, room * Math.max(0, share), 13, colors[part]!);
      at += room * Math.max(0, share);
      return drawn;
    });
    const y = top + 14 + BAR * n;
    return [label(left + before - 6, y, name, "end"), ...boxes, label(at + 6, y, text, "start", pageColor("ink"))];
  });
}

/** Draw lists of bars side by side, or one below the other where there is little room. */
export function barListsSvg(
  title: string,
  lists: { heading: string; rows: BarRow[] }[],
  colors: string[],
  width: number,
): string {
  const beside = Math.max(1, Math.min(lists.length, Math.floor(width / 300)));
  const wide = (width - 8) / beside;
  let [top, below] = [0, 0];
  const parts = lists.flatMap(({ heading, rows }, k) => {
    if (k % beside === 0) top = below;
    const left = 8 + wide * (k % beside);
    below = Math.max(below, top + 34 + BAR * rows.length);
    return [
      label(left, top + 16, heading, "start", pageColor("muted")),
      ...barRows(rows, [colors[k]!], left, top + 24, wide - 12),
    ];
  });
  return drawing(width, below, title, parts);
}
