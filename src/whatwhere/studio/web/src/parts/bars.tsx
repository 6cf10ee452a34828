/** Horizontal bars with a name and a text each, on the page and as a file. */

import type { ComponentChildren } from "preact";
import { cssColor } from "../colors";
import { box, drawing, label, textWidth } from "./svg";

export interface Bar {
  name: string;
  link?: ComponentChildren;
  /** The length, as a share of the longest, 0 to 1. */
  share: number;
  text: string;
  color?: string;
  /** Makes the name a button, which is pressed where it is the `chosen` one. */
  choose?(): void;
  chosen?: boolean;
  disabled?: boolean;
  mark?: ComponentChildren;
}

export interface BarList {
  heading: string;
  bars: Bar[];
}

const COLOR = "c2";

export function Bars({ bars, kind = "" }: { bars: Bar[]; kind?: string }) {
  return (
    <ol class={`bars ${kind}`}>
      {bars.map((bar, n) => (
        <li key={n}>
          {bar.choose ? (
            <button
              type="button"
              class="name"
              aria-pressed={bar.chosen ?? false}
              disabled={bar.disabled ?? false}
              onClick={bar.choose}
            >
              {bar.name}
            </button>
          ) : (
            <span class="name">{bar.link ?? <bdi>{bar.name}</bdi>}</span>
          )}
          <span class="track" aria-hidden="true">
            <i style={{ width: `${100 * inside(bar.share)}%`, background: cssColor(bar.color ?? COLOR) }} />
          </span>
          <span class="value">{bar.text}</span>
          {bar.mark}
        </li>
      ))}
    </ol>
  );
}

export function BarLists({ lists }: { lists: BarList[] }) {
  return (
    <div class="lists">
      {lists.map(({ heading, bars }) => (
        <section key={heading} aria-label={heading}>
          <h4>{heading}</h4>
          <Bars bars={bars} />
        </section>
      ))}
    </div>
  );
}

export function barsSvg(title: string, bars: Bar[], width = 640): string {
  return drawing(width, 16 + ROW * bars.length, title, barRows(bars, 0, 4, width));
}

export function barListsSvg(title: string, lists: BarList[]): string {
  const wide = 300;
  const longest = Math.max(...lists.map(({ bars }) => bars.length));
  const parts = lists.flatMap(({ heading, bars }, k) => [
    label(8 + wide * k, 16, heading, "start", cssColor("muted")),
    ...barRows(bars, 8 + wide * k, 24, wide - 12),
  ]);
  return drawing(wide * lists.length + 16, 34 + ROW * longest, title, parts);
}

const ROW = 22;

/** Draw bars into so much width: names before them, texts behind. */
function barRows(bars: Bar[], left: number, top: number, width: number): string[] {
  const before = left + 12 + Math.max(0, ...bars.map(({ name }) => textWidth(name)));
  const behind = 14 + Math.max(0, ...bars.map(({ text }) => textWidth(text)));
  const room = Math.max(left + width - before - behind, 20);
  return bars.flatMap(({ name, share, text, color = COLOR }, n) => {
    const [y, long] = [top + 14 + ROW * n, room * inside(share)];
    return [
      label(before - 6, y, name, "end"),
      box(before, y - 11, long, 13, cssColor(color)),
      label(before + long + 6, y, text, "start", cssColor("ink")),
    ];
  });
}

function inside(share: number): number {
  return Math.min(Math.max(share, 0), 1);
}
