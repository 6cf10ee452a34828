/** A drawing as wide as the page allows, and the figure of one: the file has the same drawing. */

import { useWidth } from "../hooks";
import { Figure, type FigureProps } from "./figure";
import { drawing } from "./svg";

export interface Sketch {
  height: number;
  parts: string[];
}

interface Props<Row> extends Omit<FigureProps<Row>, "svg"> {
  /** Draw at a width. */
  draw(width: number): Sketch;
  words: string;
}

/** The most that a drawing is wide. */
const WIDE = 760;

export function DrawnFigure<Row>({ draw, words, children, ...figure }: Props<Row>) {
  const [holder, width] = useWidth<HTMLDivElement>();
  const wide = Math.min(width, WIDE);
  const { height, parts } = draw(wide || WIDE);
  const file = () => {
    const sketch = draw(WIDE);
    return drawing(WIDE, sketch.height, figure.title, sketch.parts);
  };
  return (
    <Figure {...figure} svg={file}>
      {children}
      <div ref={holder} class="chart still">
        <svg
          role="img"
          aria-label={words}
          viewBox={`0 0 ${wide || WIDE} ${height}`}
          style={{ maxWidth: `${WIDE}px` }}
          dangerouslySetInnerHTML={{ __html: parts.join("") }}
        />
      </div>
    </Figure>
  );
}
