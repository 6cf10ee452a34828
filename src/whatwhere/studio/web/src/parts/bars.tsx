/** Horizontal bars with a name and a number each. */

import { pageColor, seriesColor } from "../colors";
import { box, drawing, label } from "./svg";

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

export function barsSvg(title: string, bars: Bar[], most: number): string {
  const parts = bars.flatMap(({ name, value, text }, n) => [
    label(150, 18 + 22 * n, name, "end"),
    box(158, 7 + 22 * n, (260 * value) / (most || 1), 13, seriesColor(1)),
    label(430, 18 + 22 * n, text, "start", pageColor("ink")),
  ]);
  return drawing(520, 16 + 22 * bars.length, title, parts);
}
