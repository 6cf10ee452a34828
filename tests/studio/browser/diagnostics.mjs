// Diagnostics: lists, their evidence, and links that lead on.
import { saved, used } from "./driving.mjs";

await used("#/diagnostics?list=unreachable", ".answer", async (page, result) => {
  const list = page.locator("section.near").nth(1);
  const cells = () => list.locator("tbody tr:not(.spacer)").evaluateAll((rows) => rows.slice(0, 12).map((row) => [...row.cells].map((cell) => cell.textContent)));
  const choice = page.getByRole("combobox", { name: "list" });
  result.counts = await page.locator(".bars .value").allInnerTexts();
  result.lists = await choice.locator("option").allInnerTexts();
  result.unreachable = await cells();
  await choice.selectOption("under_trained");
  await page.getByRole("heading", { name: "Under-trained" }).waitFor();
  result.underTrained = await cells();
  result.hash = new URL(page.url()).hash;
  result.csv = await saved(page, list, "CSV");
  result.chart = await page.getByRole("application", { name: "Cosine to the rows of lowest norm" }).getAttribute("aria-label");
  result.map = await list.getByRole("link", { name: "map" }).first().getAttribute("href");
  const card = page.locator("tbody td a").first();
  result.card = await card.getAttribute("href");
  await card.click();
  await page.waitForSelector(".card .big");
  result.big = await page.locator(".card dl dd").first().innerText();
});
