// The choice of a run in a real browser: it stays chosen from view to view, and nothing of a link scrolls the page.
import { browser, given, report, watched } from "./driving.mjs";

const result = { chosen: {} };
const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 700, height: 500 } });
result.refused = [];
page.on("response", (answer) => answer.status() === 400 && result.refused.push(`${answer.url()} ${answer.request().postData()}`));
const choice = () => page.locator("header.view select");
const view = async (title) => {
  await page.locator("nav a", { hasText: new RegExp(`^${title}$`) }).click();
  await page.waitForFunction((name) => document.querySelector("h1").textContent === name, title);
  await page.waitForFunction(() => !document.querySelector(".waiting, .stale, [aria-busy=true]"), null, { timeout: 60_000 });
};
await page.goto(`${given.url}#/tokens?token=Max`);
await page.waitForSelector(".card");
result.titles = await choice().locator("option").allInnerTexts();
await choice().selectOption(given.run);
await page.waitForFunction((run) => location.hash.includes(run), given.run);
await page.waitForFunction(() => !document.querySelector(".stale, [aria-busy=true]"));
result.norm = await page.locator("figure", { hasText: "Norm of the row in the token table" }).locator("figcaption b").first().innerText();
const titles = ["Overview", "Token card", "Token map", "Diagnostics", "Positions", "Training replay", "Attention by distance", "Pipeline"];
for (const title of titles) {
  await view(title);
  result.chosen[title] = await choice().inputValue();
}
result.scroll = await page.evaluate(() => scrollY);
result.where = await page.getByLabel("where").inputValue();
await choice().selectOption({ index: 1 });
result.own = await page.getByLabel("where").inputValue();
result.other = await choice().inputValue();
await choice().selectOption(given.beyond);
await view("Positions");
await page.waitForSelector("main figure");
result.trained = await page.locator("main figure", { hasText: "last trained: 7" }).locator("h3").allInnerTexts();
await view("Biases");
result.without = await choice().count();
result.complaints = seen.complaints;
await started.close();
report(result);
