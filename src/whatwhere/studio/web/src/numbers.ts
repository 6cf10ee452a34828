/** Numbers as text, as report/text.py writes them, with as many digits where none are chosen. */

export const MINUS = "\u2212";

/** Return a number of any size with so many significant digits, its whole part in full. */
export function formatNumber(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return notFinite(value);
  const [mantissa = "", power] = value.toExponential(digits - 1).split("e");
  const exponent = Number(power);
  if (value !== 0 && (exponent < -4 || exponent >= 15)) return `${mantissa}e${exponent}`.replaceAll("-", MINUS);
  const written = fixed(value, Math.max(0, digits - 1 - exponent));
  return written.includes(".") ? written.replace(/\.?0+$/, "") : written;
}

export function fixed(value: number, decimals: number): string {
  if (!Number.isFinite(value)) return notFinite(value);
  const size = Math.abs(value);
  const exact = size < 1e21 ? size.toFixed(decimals) : `${BigInt(size)}${decimals ? `.${"0".repeat(decimals)}` : ""}`;
  const [before = "", after] = exact.split(".");
  const written = before.replace(/\B(?=(\d{3})+$)/g, ",") + (after === undefined ? "" : `.${after}`);
  return value < 0 && /[1-9]/.test(written) ? MINUS + written : written;
}

export function whole(value: number): string {
  return fixed(value, 0);
}

function notFinite(value: number): string {
  return Number.isNaN(value) ? "not a number" : value > 0 ? "∞" : `${MINUS}∞`;
}

export function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, n) => n);
}
