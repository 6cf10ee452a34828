// Numbers as text, by the page: for pytest to compare with the same by Python.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bundle, given, report } from "./driving.mjs";

const page = await import(await bundle(join(import.meta.dirname, "units.ts"), "esm"));
const bytes = readFileSync(given.numbers);
const values = [...new Float64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))];
report({
  numbers: values.map((value) => [page.formatNumber(value), ...given.digits.map((digits) => page.formatNumber(value, digits))]),
  decimals: values.map((value) => given.places.map((places) => page.fixed(value, places))),
});
