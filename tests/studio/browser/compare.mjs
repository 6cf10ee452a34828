// View 10 in a real browser, on whatever is open: results, two checkpoints, or neither.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/compare`);
await page.waitForSelector(given.ready);
result.main = await page.locator("main").innerText();
result.titles = await page.locator("figure h3").allInnerTexts();
result.wrong = await violations(page);
if (await page.locator(".difference").count()) {
  result.paragraphs = await page.locator(".difference > p, .beside > p").allTextContents();
  const moved = page.locator("figure", { hasText: "Tokens that moved most" }).first();
  result.bars = await moved.locator(".bars li").allInnerTexts();
  result.csv = await saved(page, moved, "CSV");
  result.texts = [...(await saved(page, moved, "SVG")).matchAll(/<text[^>]*>([^<]*)/g)].map((match) => match[1]);
  const rotated = page.locator("figure", { hasText: "Cosine of a vector rotated by A and by B" });
  result.rotated = await saved(page, rotated, "CSV");
} else if (await page.locator(".answer").count()) {
  result.answer = await page.locator(".answer").textContent();
  const figure = page.locator("figure", { hasText: "Accuracy by length" });
  result.csv = await saved(page, figure, "CSV");
  const svg = await saved(page, figure, "SVG");
  result.texts = [...svg.matchAll(/<text[^>]*>([^<]*)/g)].map((match) => match[1]);
  result.bands = svg.split("fill-opacity").length - 1;
  result.verdicts = await page.locator("section.verdicts tbody tr").allInnerTexts();
  await page.getByRole("combobox", { name: "scores of" }).selectOption("Max");
  await page.getByRole("heading", { name: "Accuracy by length, Max alone" }).waitFor();
  result.group = new URL(page.url()).hash;
}
await page.getByRole("button", { name: "Show the page dark" }).click();
result.dark = await violations(page);
await context.close();
result.small = await small(started, `${given.url}#/compare`, given.ready);
result.requests = [...seen.requests, ...result.small.requests];
result.complaints = seen.complaints;
await started.close();
report(result);
