// The token map: true neighbors, a rectangle, groups, and a map that is computed by a job, stopped, and computed again.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
const at = (hash) => `${given.url}${hash}`;
const settled = () => page.waitForFunction(() => document.querySelector(".scatter canvas")?.dataset.milliseconds && document.querySelector(".near"));
await page.goto(at("#/map?token=%23" + given.token));
await settled();
const figure = page.locator("figure.figure").first();
result.printed = await page.locator(".printed span").allInnerTexts();
result.note = await figure.locator("figcaption p").innerText();
result.near = await page.locator(".chips li .token").allInnerTexts();
result.cosines = await page.locator(".chips li small").allInnerTexts();
result.of = await page.locator(".near .note").innerText();
result.line = await page.locator(".scatter .under bdi").innerText();
result.light = await violations(page);
result.csv = await saved(page, figure, "CSV");
result.svg = await saved(page, figure, "SVG");

// A rectangle by the keyboard holds all; by the pointer, what it covers; the address holds it.
await page.locator(".scatter .chart").focus();
await page.keyboard.press("s");
result.all = await page.locator('[aria-label="Selected tokens"] h2').innerText();
const area = await page.locator(".scatter canvas").boundingBox();
await page.getByLabel("drag selects").check();
await page.mouse.move(area.x + area.width / 2, area.y);
await page.mouse.down();
await page.mouse.move(area.x + area.width, area.y + area.height, { steps: 3 });
await page.mouse.up();
await page.waitForFunction((before) => document.querySelector('[aria-label="Selected tokens"] h2').innerText !== before, result.all);
result.half = await page.locator('[aria-label="Selected tokens"] h2').innerText();
result.rows = await page.locator('[aria-label="Selected tokens"] tbody tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
result.box = new URL(page.url()).hash;
await page.getByRole("button", { name: "Let go" }).click();

// One group before the others; colors by amount; what stands in for frequency says so.
const group = page.locator(".groups button").first();
await group.click();
result.only = [await group.innerText(), await group.getAttribute("aria-pressed"), new URL(page.url()).hash];
await page.getByLabel("colored by").selectOption("frequency");
await page.waitForFunction(() => document.querySelector("figcaption p").innerText.includes("proxy"));
result.bar = await page.locator(".scatter .under .bar").innerText();

// A job: stopped, then let run to its end; the map of it is there again after a reload.
await page.getByLabel("laid out by").selectOption("tsne");
await page.getByRole("button", { name: "Draw by t-SNE" }).click();
await page.waitForSelector(".progress progress");
await page.waitForFunction(() => document.querySelector(".progress").innerText.includes("step"));
result.progress = await page.locator(".progress span").innerText();
await page.getByRole("button", { name: "Stop" }).click();
await page.getByRole("button", { name: "Draw by t-SNE" }).click();
await page.getByRole("heading", { name: "by t-SNE" }).waitFor();
result.drawn = await page.locator(".printed span").allInnerTexts();
await page.reload();
await page.getByRole("heading", { name: "by t-SNE" }).waitFor();
result.without = await page.getByRole("button", { name: "Draw by t-SNE" }).count();

// A method whose package is missing says how to get it, and shows what there is.
await page.getByLabel("laid out by").selectOption("umap");
await page.getByText("pip install").waitFor();
result.missing = await page.locator(".wrong").innerText();
result.title = await figure.locator("h3").innerText();

// A map that has left is drawn no more, though its last frame was still to come.
for (let round = 0; round < 5; round++) {
  await page.goto(at("#/map"));
  await settled();
  await page.evaluate(
    () =>
      new Promise((done) => {
        document.querySelector(".scatter canvas").dispatchEvent(new WheelEvent("wheel", { deltaY: -40, bubbles: true, cancelable: true }));
        requestAnimationFrame(() => setTimeout(() => ((location.hash = "#/distance"), setTimeout(done, 100))));
      }),
  );
}
result.small = await small(started, at("#/map"), ".near");
result.requests = seen.requests;
result.complaints = seen.complaints;
await started.close();
report(result);
