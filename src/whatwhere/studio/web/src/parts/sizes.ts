/** Figures at the widths of pages and of papers. */

import { inLight } from "../theme";

/** A width of files: that of the page, or of a column of a paper. */
export interface Size {
  name: string;
  /** In pixels, 96 to an inch; without, that of the drawing itself. */
  width?: number;
  /** Whether it is for a paper, whose captions are its own: without a heading, and a PNG of 600 dots to an inch. */
  paper?: boolean;
}

export const SIZES: Size[] = [
  { name: "as drawn" },
  { name: "one column, 3.3 in", width: 316.8, paper: true },
  { name: "two columns, 7 in", width: 672, paper: true },
  { name: "1,200 px", width: 1200 },
];

/** Draw a figure at a size, in the colors of the light page; a drawing of fixed proportions is scaled to it. */
export function sized(draw: (width?: number) => string, { width, paper = false }: Size): string {
  const text = inLight(() => draw(width));
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  let [x = 0, y = 0, wide = 0, tall = 0] = svg.getAttribute("viewBox")!.split(" ").map(Number);
  if (paper) {
    svg.querySelectorAll(".heading").forEach((line) => line.remove());
    [y, tall] = [0, tall + y];
  }
  const scale = (width ?? wide) / wide;
  const length = (pixels: number) =>
    paper ? `${Number(((pixels * scale) / 96).toFixed(4))}in` : String(pixels * scale);
  svg.setAttribute("viewBox", [x, y, wide, tall].join(" "));
  svg.setAttribute("width", length(wide));
  svg.setAttribute("height", length(tall));
  return new XMLSerializer().serializeToString(svg);
}
