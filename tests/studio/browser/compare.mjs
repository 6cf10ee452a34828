// View 10 in a real browser, on whatever is open: results, two checkpoints, or neither.
import { browser, given, saved, small, tell, violations, watched } from "./driving.mjs";

const found = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/compare`);
await page.waitForSelector(given.ready);
found.main = await page.locator("main").innerText();
found.titles = await page.locator("figure h3").allInnerTexts();
found.wrong = await violations(page);
if (await page.locator(".difference").count()) {
  found.paragraphs = await page.locator(".difference > p, .beside > p").allTextContents();
  const moved = page.locator("figure", { hasText: "Tokens that moved most" }).first();
  found.bars = await moved.locator(".bars li").allInnerTexts();
  found.csv = await saved(page, moved, "CSV");
  found.texts = [...(await saved(page, moved, "SVG")).matchAll(/<text[^>]*>([^<]*)/g)].map((match) => match[1]);
  const rotated = page.locator("figure", { hasText: "Cosine of a vector rotated by A and by B" });
  found.rotated = await saved(page, rotated, "CSV");
} else if (await page.locator(".answer").count()) {
  found.answer = await page.locator(".answer").textContent();
  const figure = page.locator("figure", { hasText: "Accuracy by length" });
  found.csv = await saved(page, figure, "CSV");
  const svg = await saved(page, figure, "SVG");
  found.texts = [...svg.matchAll(/<text[^>]*>([^<]*)/g)].map((match) => match[1]);
  found.bands = svg.split("fill-opacity").length - 1;
  found.verdicts = await page.locator("section.verdicts tbody tr").allInnerTexts();
  await page.getByRole("combobox", { name: "scores of" }).selectOption("Max");
  await page.getByRole("heading", { name: "Accuracy by length, Max alone" }).waitFor();
  found.group = new URL(page.url()).hash;
}
await page.getByRole("button", { name: "Show the page dark" }).click();
found.dark = await violations(page);
await context.close();
found.small = await small(started, `${given.url}#/compare`, given.ready);
found.requests = [...seen.requests, ...found.small.requests];
found.complaints = seen.complaints;
await started.close();
tell(found);
