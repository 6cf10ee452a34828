// Text made safe to show, by the page: for pytest to compare with the same by Python.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bundle, given, report } from "./driving.mjs";

const page = await import(await bundle(join(import.meta.dirname, "units.ts"), "esm"));
const texts = JSON.parse(readFileSync(given.texts, "utf8")).map((codes) => String.fromCodePoint(...codes));
report({
  visible: texts.map((text) => page.visible(text)),
  token: texts.map((text) => page.visibleToken(text)),
  shown: JSON.parse(readFileSync(given.pairs, "utf8")).map(([token, text]) => page.visibleToken(page.face(token, text))),
  short: texts.map((text) => page.visibleToken(text, 12)),
});
