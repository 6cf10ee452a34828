/** A drawing as wide as the page allows: the same SVG as in the file to download. */

import { useTheme, useWidth } from "../../hooks";

interface Props {
  /** Draw at a width. */
  svg(width: number): string;
  words: string;
}

export function StillSvg({ svg, words }: Props) {
  const [holder, width] = useWidth<HTMLDivElement>();
  void useTheme(); // draws again when the theme changes
  const shown = width ? `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg(Math.min(width, 760)))}` : undefined;
  return (
    <div ref={holder} class="still">
      {shown && <img alt={words} src={shown} />}
    </div>
  );
}
