// The token card in a real browser: opened by its address, used by keyboard, saved to files.
import { readFileSync } from "node:fs";
import { browser, given, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
const hash = "#/tokens?token=king&k=5&a=man&b=king&c=woman";
await page.goto(given.url + hash);
await page.waitForSelector(".analogy .bars li");
result.address = page.url();
result.title = await page.title();
result.big = await page.textContent(".card .big");
result.facts = await page.locator(".card dl").first().innerText();
await page.waitForSelector(".two .lists section");
result.lists = await lists(".two .lists section");
await page.waitForSelector(".analogy .lists section");
result.analogy = await lists(".analogy .lists section");
result.note = await page.locator(".card figcaption p").first().innerText();
result.colors = await page.evaluate(() => {
  const canvas = document.querySelector(".heat canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
});
result.webgl = await page.evaluate(() => document.createElement("canvas").getContext("webgl2") !== null);
result.light = await violations(page);

// Files: what is saved holds what is shown.
const figure = page.locator("figure", { hasText: "Nearest tokens" });
const saved = async (kind) => {
  const [download] = await Promise.all([page.waitForEvent("download"), figure.getByRole("button", { name: `as ${kind}` }).click()]);
  return { name: download.suggestedFilename(), content: readFileSync(await download.path()) };
};
result.csv = String((await saved("CSV")).content);
result.svg = String((await saved("SVG")).content);
const png = (await saved("PNG")).content;
result.png = { magic: png.subarray(1, 4).toString(), width: png.readUInt32BE(16), height: png.readUInt32BE(20) };

// The table, opened and sorted by keyboard.
await figure.getByRole("button", { name: "Table" }).press("Enter");
const heading = figure.getByRole("columnheader", { name: "cosine" });
await heading.getByRole("button").press("Enter");
result.sort = await heading.getAttribute("aria-sort");
result.sorted = await figure.locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.cells[5].textContent));
await figure.getByText("How was this computed?").press("Enter");
result.how = await figure.locator(".how pre").innerText();
await page.getByRole("button", { name: "Show the page dark" }).click();
result.dark = await violations(page);

// By keyboard to another token, and back.
await page.keyboard.press("Control+k");
await page.keyboard.type("quee");
await page.waitForSelector('[role="option"]');
await page.keyboard.press("ArrowDown");
await page.keyboard.press("Enter");
await page.waitForFunction(() => document.querySelector(".card .big")?.textContent === "queen");
result.next = new URL(page.url()).hash;
await page.waitForFunction(() => !/^#/.test(document.querySelector("input[data-main]").value));
result.field = await page.locator("input[data-main]").inputValue();
await page.goBack();
await page.waitForFunction(() => document.querySelector(".card .big")?.textContent === "king");
result.back = new URL(page.url()).hash;
// Until they are answered, the rows are still those of the token before.
await page.waitForFunction(() => document.querySelector(".two .lists .name")?.textContent.startsWith("king"));

// The picture of rows is read by arrow keys.
await page.locator(".heat .chart").focus();
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowDown");
result.cell = await page.locator(".heat .tip").innerText();
await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent !== "");
result.spoken = await page.textContent('[aria-live="polite"]');

// What the server refuses is said in its words.
await page.goto(`${given.base}/#/tokens?token=nosuchtokenatall`);
await page.waitForSelector('[role="alert"]');
result.refused = await page.locator('[role="alert"]').first().innerText();
result.wrong = await violations(page);
await context.close();

// As small as a telephone: nothing is wider than the screen.
const small = await watched(started, { viewport: { width: 420, height: 860 }, colorScheme: "dark" });
await small.page.goto(given.url + hash);
await small.page.waitForSelector(".analogy .bars li");
result.overflow = await small.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
result.small = await violations(small.page);
result.theme = await small.page.getAttribute("html", "data-theme");
await small.context.close();

// Without the key: no page, no answer.
const stranger = await watched(started, {});
result.stranger = (await stranger.page.goto(`${given.base}/`)).status();
await stranger.context.close();

result.requests = [...seen.requests, ...small.seen.requests];
result.complaints = [...seen.complaints, ...small.seen.complaints];
await started.close();
report(result);

async function lists(selector) {
  return page.locator(selector).evaluateAll((sections) =>
    sections.map((section) => ({
      name: section.getAttribute("aria-label"),
      words: [...section.querySelectorAll(".name")].map((each) => each.textContent),
      values: [...section.querySelectorAll(".value")].map((each) => each.textContent),
    })),
  );
}
