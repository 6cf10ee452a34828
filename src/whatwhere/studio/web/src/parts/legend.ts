/** Curves as a file, with a legend below, and in words. */

import { formatNumber } from "../numbers";
import { colorOf, type Curve, dashed, finite, lastKnown, type LinesProps, MARKERS, plotOf, plotSvg } from "./plot";
import { drawing, label, n, textWidth } from "./svg";

/** Return the name of a curve for a legend: with what cannot be seen of it, where values are marked. */
export function legendName({ name, values, baseline }: Curve, { x, dots, logY }: LinesProps): string {
  if (!dots || baseline) return name;
  const last = lastKnown(values, x.length);
  if (last < 0) return `${name} (${logY ? "all 0" : "no values"})`;
  return last < x.length - 1 ? `${name} (ends at ${formatNumber(x[last])})` : name;
}

/** Draw a piece of a curve, as legends show it. */
export function swatchSvg(curve: Curve, k: number, dots: boolean, x = 0, y = 8): string {
  const color = colorOf(curve, k);
  const marker =
    dots && !curve.baseline
      ? `<path d="M${n(x + 13)} ${n(y)}${MARKERS[(curve.marker ?? k) % MARKERS.length]!}" fill="${color}"/>`
      : "";
  return `<line x1="${n(x)}" y1="${n(y)}" x2="${n(x + 26)}" y2="${n(y)}" stroke="${color}" stroke-width="2"${dashed(curve)}/>${marker}`;
}

/** Draw the curves as a file: with a heading above and a legend below. */
export function linesSvg(props: LinesProps, width = 720): string {
  const plot = plotOf(props, width, Math.round(Math.min(Math.max(0.52 * width, 224), 460)));
  const parts = [plotSvg(props, plot)];
  let [x, y] = [8, plot.height + 14];
  if (props.curves.length > 1)
    props.curves.forEach((curve, k) => {
      const name = legendName(curve, props);
      const room = 32 + textWidth(name);
      if (x > 8 && x + room > width) [x, y] = [8, y + 18];
      parts.push(swatchSvg(curve, k, props.dots ?? false, x, y - 4), label(x + 32, y, name));
      x += room + 14;
    });
  return drawing(width, props.curves.length > 1 ? y + 10 : plot.height + 4, props.title, parts);
}

/** Describe the curves in words. */
export function summary({ x, curves, xLabel, yLabel, marks = [], levels = [] }: LinesProps): string {
  const range = x.length ? `${xLabel} from ${formatNumber(x[0])} to ${formatNumber(x[x.length - 1])}; ${yLabel}. ` : "";
  const each = curves.map(({ name, values }) => {
    const known = Array.from(values, (value, k) => ({ value, k })).filter((point) => finite(point.value)) as {
      value: number;
      k: number;
    }[];
    if (!known.length) return `${name}: no values.`;
    const high = known.reduce((best, point) => (point.value > best.value ? point : best));
    const low = known.reduce((best, point) => (point.value < best.value ? point : best));
    return `${name}: greatest ${formatNumber(high.value)} at ${formatNumber(x[high.k])}, least ${formatNumber(low.value)} at ${formatNumber(x[low.k])}.`;
  });
  const labeled = [
    ...marks.map((mark) => ({ text: mark.text, at: mark.x })),
    ...levels.filter(({ text }) => text).map(({ text, y }) => ({ text, at: y })),
  ];
  return range + each.join(" ") + labeled.map(({ text, at }) => ` ${text}: ${formatNumber(at)}.`).join("");
}
