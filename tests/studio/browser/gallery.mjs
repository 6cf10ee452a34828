// The parts of views in a browser without any 3D: the map of points, curves, a table of many rows.
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { browser, bundle, given, report, violations, watched } from "./driving.mjs";

const script = await bundle(join(import.meta.dirname, "gallery.tsx"), "iife");
const document_ = join(dirname(script), "index.html");
const head = '<meta charset="utf-8"><title>Gallery</title><link rel="stylesheet" href="bundle.css">';
writeFileSync(document_, `<!doctype html><html lang="en"><head>${head}</head><body><div id="studio"></div><script src="bundle.js"></script></body></html>`);

const result = {};
const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 1400, height: 900 }, colorScheme: "light" });
await page.goto(`${pathToFileURL(document_)}?points=${given.points ?? 130000}`);
const canvas = page.locator(".scatter canvas");
await page.waitForFunction(() => document.querySelector(".scatter canvas")?.dataset.milliseconds);
result.violations = await violations(page);

// Redraw at many places.
result.milliseconds = [];
await page.locator(".scatter .chart").focus();
for (const key of ["ArrowLeft", "ArrowRight", "+", "-", "ArrowUp", "ArrowDown", "+", "+", "0"]) {
  await canvas.evaluate((element) => delete element.dataset.milliseconds);
  await page.keyboard.press(key);
  await page.waitForFunction(() => document.querySelector(".scatter canvas").dataset.milliseconds);
  result.milliseconds.push(Number(await canvas.evaluate((element) => element.dataset.milliseconds)));
}

// Walk by keyboard, then choose by mouse what is drawn there: the same point.
await page.keyboard.press("n");
result.first = Number(await page.textContent("#chosen"));
await page.keyboard.press("n");
result.second = Number(await page.textContent("#chosen"));
result.spoken = await page.textContent('[aria-live="polite"]');
await page.keyboard.press("Escape");
result.none = await page.textContent("#chosen");
const area = await canvas.boundingBox();
const middle = { x: area.x + area.width / 2, y: area.y + area.height / 2 };
await page.mouse.click(middle.x, middle.y);
result.clicked = Number(await page.textContent("#chosen"));
result.expected = await page.evaluate(() => {
  const { x, y } = globalThis.points;
  const [left, right, bottom, top] = [x, x, y, y].map((axis, n) => axis.reduce((a, b) => (n % 2 ? Math.max(a, b) : Math.min(a, b))));
  const [cx, cy] = [(left + right) / 2, (bottom + top) / 2];
  return x.reduce((best, _, n) => (Math.hypot(x[n] - cx, y[n] - cy) < Math.hypot(x[best] - cx, y[best] - cy) ? n : best), 0);
});

// Select all by a rectangle.
await page.keyboard.down("Shift");
await page.mouse.move(area.x + 1, area.y + 1);
await page.mouse.down();
await page.mouse.move(area.x + area.width - 1, area.y + area.height - 1, { steps: 3 });
await page.mouse.up();
await page.keyboard.up("Shift");
result.selected = Number(await page.textContent("#selected"));
result.svg = (await page.evaluate(() => globalThis.svg())).slice(0, 200);

// Curves are read by arrow keys.
await page.getByRole("application", { name: "Two curves" }).focus();
await page.keyboard.press("End");
await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent.startsWith("length"));
result.read = await page.textContent('[aria-live="polite"]');
result.summary = await page.getByRole("application", { name: "Two curves" }).getAttribute("aria-label");

// A table of 100,000 rows holds few of them, the right ones, also at its end and turned round.
const table = page.getByRole("region", { name: "Many rows" });
result.drawn = await table.locator("tbody tr").count();
await table.evaluate((element) => element.scrollTo(0, element.scrollHeight));
await page.waitForFunction(() => document.querySelector(".scroll.tall").innerText.includes("99,999"));
result.last = await table.locator("tbody tr").last().innerText();
await table.getByRole("button", { name: "number" }).press("Enter");
await table.evaluate((element) => element.scrollTo(0, 0));
await page.waitForFunction(() => document.querySelector(".scroll.tall tbody tr").innerText.includes("99,999"));
result.turned = await table.locator("tbody tr").first().innerText();

result.requests = seen.requests;
result.complaints = seen.complaints;
await started.close();
report(result);
