// What modules of the page make of numbers, of texts, and of jobs: for pytest to compare with the same by Python.
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { browser, bundle, given, report, watched } from "./driving.mjs";

const modules = join(import.meta.dirname, "units.ts");
report(await (given.page ? jobs() : given.numbers ? numbers() : texts()));

async function numbers() {
  const page = await import(await bundle(modules, "esm"));
  const bytes = readFileSync(given.numbers);
  const values = [...new Float64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))];
  return {
    numbers: values.map((value) => [page.formatNumber(value), ...given.digits.map((digits) => page.formatNumber(value, digits))]),
    decimals: values.map((value) => given.places.map((places) => page.fixed(value, places))),
  };
}

async function texts() {
  const page = await import(await bundle(modules, "esm"));
  const texts = JSON.parse(readFileSync(given.texts, "utf8")).map((codes) => String.fromCodePoint(...codes));
  return {
    visible: texts.map((text) => page.visible(text)),
    token: texts.map((text) => page.visibleToken(text)),
    shown: JSON.parse(readFileSync(given.pairs, "utf8")).map(([token, text]) => page.visibleToken(page.face(token, text))),
    short: texts.map((text) => page.visibleToken(text, 12)),
  };
}

/** Jobs in a browser: followed to the answer, stopped on the way, refused in the server's words. */
async function jobs() {
  copyFileSync(await bundle(modules, "iife"), join(given.page, "studio.js"));
  const started = await browser();
  const { page } = await watched(started, {});
  await page.goto(given.url);
  const run = (...job) =>
    page.evaluate(async ([name, settings, stopAt]) => {
      const [reports, leaving] = [[], new AbortController()];
      const follow = (progress) => {
        reports.push(progress);
        if (stopAt && progress.fraction >= stopAt) leaving.abort();
      };
      try {
        return { answer: await new globalThis.studio.LiveSource().run(name, settings, follow, leaving.signal), reports };
      } catch (problem) {
        return { problem: problem.name, message: problem.message, reports };
      }
    }, job);
  const result = { done: await run("count", { to: 5 }), stopped: await run("count", { to: 100000 }, 0.00001) };
  Object.assign(result, { failed: await run("refuse", {}), unknown: await run("nothing", {}) });
  await started.close();
  return result;
}
