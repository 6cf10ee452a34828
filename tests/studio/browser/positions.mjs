// The positions view in a real browser: pictures of the loaded table, and of schemes.
import { figureOf, saved, used } from "./driving.mjs";

await used("#/positions?rows=64", "figure .heat", async (page, result) => {
  const path = figureOf(page, "The path of the positions");
  const titles = () => page.locator("figure h3").allInnerTexts();
  result.figures = await titles();
  result.csv = await saved(page, path, "CSV");
  result.svg = await saved(page, path, "SVG");
  result.path = await path.locator("figcaption p").innerText();
  result.note = await figureOf(page, "The norm of each").locator("figcaption p").innerText();

  // The path is walked by arrow keys; other axes stand in the address.
  await path.getByRole("application").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent.startsWith("position 3:"));
  await path.getByLabel("components").selectOption("2,3");
  await page.waitForFunction(() => location.hash.includes("axes"));
  result.address = page.url();

  result.columns = await saved(page, figureOf(page, "Single features by position"), "CSV");
  await page.getByLabel("where").selectOption("sinusoidal");
  await page.getByRole("heading", { name: "Wavelength of each pair" }).waitFor();
  result.sinusoid = await titles();
  result.bar = await page.locator("figure .bar").first().innerText();

  // A scheme that depends on queries and keys has no figure, and the view explains it.
  await page.getByLabel("where").selectOption("cope");
  await page.waitForSelector(".lead");
  result.content = await page.locator(".lead").innerText();
});
