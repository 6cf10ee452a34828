/** Curves on the page: their numbers beside the cursor, by mouse or arrow keys; a legend that hides; drag to enlarge. */

import { useMemo, useState } from "preact/hooks";
import { cssColor } from "../colors";
import { useWidth } from "../hooks";
import { formatNumber } from "../numbers";
import { announce } from "./states";
import {
  colorOf,
  cropped,
  type Curve,
  legendName,
  type LinesProps,
  type Plot,
  plotOf,
  plotSvg,
  summary,
  swatchSvg,
} from "./plot";
import { box, line, SELECTED } from "./svg";

/** How near the cursor must be to a curve, in pixels, to put it before the others. */
const NEAR = 24;

export function Lines(whole: LinesProps) {
  const { title, x, height = 240 } = whole;
  const [holder, width] = useWidth<HTMLDivElement>();
  const own = useState(new Set<string>());
  const [hidden, setHidden] = whole.hidden ?? own;
  const [part, setPart] = useState<[number, number] | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const [focus, setFocus] = useState(-1);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const last = x.length - 1;
  const [first, end] = part && part[1] <= last ? part : [0, last];
  const props = useMemo(() => (part ? cropped(whole, [first, end]) : whole), [whole, first, end]);
  const { curves, xLabel } = props;
  const plot = useMemo(() => {
    const shown = { ...props, curves: curves.filter(({ name }) => !hidden.has(name)) };
    return plotOf(shown, Math.max(width, 200), height);
  }, [props, width, hidden]);
  const drawn = useMemo(() => plotSvg(props, plot, hidden, focus), [plot, focus]);
  const cursor = at === null ? null : Math.min(Math.max(at - first, 0), end - first);

  const pixels = (event: PointerEvent): [number, number] => {
    const area = holder.current!.getBoundingClientRect();
    return [
      ((event.clientX - area.left) * plot.width) / area.width,
      ((event.clientY - area.top) * plot.width) / area.width,
    ];
  };
  const move = (event: PointerEvent) => {
    const [px, py] = pixels(event);
    const here = nearest(plot, props.x, px);
    setAt(here + first);
    setFocus(nearestCurve(plot, curves, hidden, here, py));
    if (drag) setDrag([drag[0], px]);
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const [px] = pixels(event);
    holder.current!.setPointerCapture(event.pointerId);
    setDrag([px, px]);
  };
  const up = () => {
    setDrag(null);
    if (!drag || !isDrag(drag)) return;
    const [from, to] = drag.map((px) => nearest(plot, props.x, px) + first).sort((a, b) => a - b) as [number, number];
    if (to > from) setPart([from, to]);
  };
  const leave = () => {
    setAt(null);
    setFocus(-1);
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") {
      leave();
      setPart(null);
    } else if (by !== undefined) {
      const here = Math.min(Math.max((at ?? first - 1) + by, first), end);
      setAt(here);
      announce(`${xLabel} ${formatNumber(x[here])}: ${spoken(whole.curves, hidden, here)}`);
    } else return;
    event.preventDefault();
  };
  const toggle = (name: string) => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  };
  const { top, height: tall } = plot.frame;
  const here = cursor === null ? 0 : plot.across(props.x[cursor]!);
  const marked =
    (cursor === null ? "" : line(here, top, here, top + tall, cssColor("muted"))) +
    (drag && isDrag(drag)
      ? box(Math.min(...drag), top, Math.abs(drag[1] - drag[0]), tall, SELECTED, cssColor("link"))
      : "");
  return (
    <>
      <div
        class="chart lines"
        role="application"
        aria-roledescription="line chart"
        aria-label={`${title}. ${summary(whole)} Arrow keys read the values.`}
        tabIndex={0}
        ref={holder}
        onKeyDown={keys}
        onBlur={leave}
        onPointerMove={move}
        onPointerDown={down}
        onPointerUp={up}
        onPointerLeave={leave}
        onDblClick={() => setPart(null)}
      >
        <svg viewBox={`0 0 ${plot.width} ${plot.height}`} aria-hidden="true">
          <g dangerouslySetInnerHTML={{ __html: drawn }} />
          <g dangerouslySetInnerHTML={{ __html: marked }} />
        </svg>
        {cursor !== null && <Cursor props={props} plot={plot} hidden={hidden} at={cursor} focus={focus} />}
      </div>
      {((curves.length > 1 && !whole.bare) || part) && (
        <p class="legend">
          {!whole.bare &&
            curves.length > 1 &&
            curves.map((curve, k) => (
              <button
                key={curve.name}
                type="button"
                aria-pressed={!hidden.has(curve.name)}
                title={hidden.has(curve.name) ? "Show this curve" : "Hide this curve"}
                onClick={() => toggle(curve.name)}
                onPointerEnter={() => setFocus(hidden.has(curve.name) ? -1 : k)}
                onPointerLeave={() => setFocus(-1)}
              >
                <svg
                  class="swatch"
                  viewBox="0 0 26 16"
                  aria-hidden="true"
                  dangerouslySetInnerHTML={{ __html: swatchSvg(curve, k, props.dots ?? false) }}
                />{" "}
                <bdi>{legendName(curve, whole)}</bdi>
              </button>
            ))}
          {part && (
            <button type="button" onClick={() => setPart(null)}>
              Show all of {xLabel}
            </button>
          )}
        </p>
      )}
    </>
  );
}

interface CursorProps {
  props: LinesProps;
  plot: Plot;
  hidden: Set<string>;
  at: number;
  focus: number;
}

function isDrag([from, to]: [number, number]): boolean {
  return Math.abs(to - from) >= 8;
}

/** The numbers at one x, beside a line through the curves. */
function Cursor({ props, plot, hidden, at, focus }: CursorProps) {
  const { width, frame, across } = plot;
  const left = across(props.x[at]!);
  const right = left > frame.left + frame.width / 2;
  const share = (value: number) => `${(100 * value) / width}%`;
  return (
    <div
      class="tip"
      aria-hidden="true"
      style={right ? { right: share(width - left + 10) } : { left: share(left + 10) }}
    >
      <b>
        {props.xLabel} {formatNumber(props.x[at])}
      </b>
      {props.curves.map((curve, k) =>
        hidden.has(curve.name) ? null : (
          <span key={curve.name} class={k === focus ? "focus" : undefined}>
            <i style={{ background: colorOf(curve, k) }} />
            <bdi>{curve.name}</bdi> <span class="value">{withBand(curve, at)}</span>
          </span>
        ),
      )}
    </div>
  );
}

function withBand({ values, low, high }: Curve, at: number): string {
  const [least, most] = [low?.[at], high?.[at]];
  const band =
    least === undefined || least === null || least === most ? "" : ` (${formatNumber(least)} to ${formatNumber(most)})`;
  return formatNumber(values[at]) + band;
}

function spoken(curves: Curve[], hidden: Set<string>, at: number): string {
  return curves
    .filter(({ name }) => !hidden.has(name))
    .map((curve) => `${curve.name} ${formatNumber(curve.values[at])}`)
    .join(", ");
}

function nearest({ across }: Plot, x: ArrayLike<number>, px: number): number {
  let best = 0;
  for (let p = 1; p < x.length; p++) if (Math.abs(across(x[p]!) - px) < Math.abs(across(x[best]!) - px)) best = p;
  return best;
}

function nearestCurve({ up }: Plot, curves: Curve[], hidden: Set<string>, at: number, py: number): number {
  let [best, least] = [-1, NEAR];
  curves.forEach(({ name, values }, k) => {
    const value = values[at];
    if (hidden.has(name) || value === null || value === undefined) return;
    const away = Math.abs(up(value) - py);
    if (away < least) [best, least] = [k, away];
  });
  return best;
}
