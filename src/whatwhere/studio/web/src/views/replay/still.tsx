/** A drawing on the page, as wide as there is room: the text of the file that a reader may take away. */

import { useTheme, useWidth } from "../../hooks";

interface Props {
  /** Draw at a width. */
  svg(width: number): string;
  words: string;
}

export function StillSvg({ svg, words }: Props) {
  const [holder, width] = useWidth<HTMLDivElement>();
  void useTheme(); // a new theme draws anew
  const shown = width ? `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg(Math.min(width, 760)))}` : undefined;
  return (
    <div ref={holder} class="still">
      {shown && <img alt={words} src={shown} />}
    </div>
  );
}
