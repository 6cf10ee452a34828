// Jobs as the page runs them: followed to the answer, stopped on the way, refused in the server's words.
import { browser, bundle, given, report, watched } from "./driving.mjs";
import { copyFileSync } from "node:fs";
import { join } from "node:path";

copyFileSync(await bundle(join(import.meta.dirname, "jobs.ts"), "iife"), join(given.page, "studio.js"));
const started = await browser();
const { page } = await watched(started, {});
await page.goto(given.url);
await page.waitForFunction(() => globalThis.run);
const run = (...words) => page.evaluate((words) => globalThis.run(...words), words);
const result = { done: await run("count", { to: 5 }, null), stopped: await run("count", { to: 100000 }, 0.00001), failed: await run("refuse", {}, null), unknown: await run("nothing", {}, null) };
await started.close();
report(result);
