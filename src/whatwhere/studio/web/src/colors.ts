/** Colors: those of the page by name, and maps from numbers to colors that the color-blind can read. */

export const SERIES = 8;

/** Return a color of the page's style, such as "ink" or "c1", in the theme that is shown. */
export function pageColor(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Return a color of the page by its name, which follows the theme; drawings that are saved resolve it. */
export function cssColor(name: string): string {
  return `var(--${name})`;
}

export function cssSeries(number: number): string {
  return cssColor(`c${number % SERIES}`);
}

export type MapName = "signed" | "amount";

// Signed: blue, white, orange-brown (PuOr reversed; safe for all common color blindness). Amount: viridis.
const STOPS: Record<MapName, string[]> = {
  signed: ["#0b3f7c", "#3f7fbf", "#9cc3e6", "#f7f7f7", "#f3c08a", "#d9822b", "#8a4300"],
  amount: ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"],
};

export function colorTable(name: MapName): Uint8ClampedArray {
  const stops = STOPS[name].map((color) => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16)));
  const table = new Uint8ClampedArray(256 * 4);
  for (let n = 0; n < 256; n++) {
    const at = (n / 255) * (stops.length - 1);
    const left = stops[Math.floor(at)]!;
    const right = stops[Math.min(Math.floor(at) + 1, stops.length - 1)]!;
    for (let c = 0; c < 3; c++) table[4 * n + c] = left[c]! + (right[c]! - left[c]!) * (at % 1);
    table[4 * n + 3] = 255;
  }
  return table;
}
