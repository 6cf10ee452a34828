/** Numbers in words: four digits that mean something, and never "-0". */

export function told(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace("-", "−");
  if (Number.isInteger(value)) return whole(value);
  const places = Math.max(0, Math.min(7, digits - 1 - Math.floor(Math.log10(size))));
  return value.toFixed(places).replace("-", "−");
}

export function fixed(value: number, places: number): string {
  const said = value.toFixed(places);
  return (Number(said) === 0 ? (0).toFixed(places) : said).replace("-", "−");
}

export function whole(value: number): string {
  return value.toLocaleString("en-US").replace("-", "−");
}

/** Give the range of an axis that holds these numbers too. */
export function ranged(held: number[], log: boolean) {
  return (_: unknown, least: number, most: number): [number, number] => {
    const places = [least, most, ...held].filter((value) => Number.isFinite(value) && (!log || value > 0));
    const [low, high] = [Math.min(...places), Math.max(...places)];
    if (!places.length) return [1, 10];
    if (log) {
      // uPlot adds steps to where the axis begins, and never ends where that is 9.5e-7: it rounds past the power of ten.
      const power = 10 ** Math.floor(Math.log10(low / 1.5));
      return [Number((Math.max(1, Math.floor(low / 1.5 / power)) * power).toPrecision(1)), Math.max(high, low * 2) * 1.5];
    }
    const room = (high - low || 1) * 0.05;
    return [low - room, high + room];
  };
}
