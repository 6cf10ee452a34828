// Views 11 and 12 in a real browser: a run of a comparison, scrubbed, played, and its heads.
import { figureOf, saved, used } from "./driving.mjs";

await used("#/replay", ".still text", async (page, result) => {
  const status = () => page.locator(".replay output").innerText();
  const at = (step) => page.waitForFunction((step) => document.querySelector(".replay output").textContent.startsWith(`step ${step}`), step);
  const slider = page.getByRole("slider", { name: "Step" });
  const picture = () => page.locator(".still svg").first().innerHTML();
  const titles = () => page.locator("figure h3").allInnerTexts();
  result.titles = await titles();
  result.play = await page.getByRole("button", { name: "Play" }).count();
  result.opened = await status();
  await slider.press("Home");
  await at(0);
  result.first = await status();
  const before = await picture();
  await slider.press("End");
  await at(7);
  result.moved = (await picture()) !== before;
  result.last = await status();
  result.address = new URL(page.url()).hash;
  result.line = await figureOf(page, "The digits on a line").locator("figcaption p").innerText();
  result.csv = await saved(page, figureOf(page, "on a plane"), "CSV");
  await page.getByRole("combobox", { name: "show" }).selectOption("table");
  await page.getByRole("heading", { name: "The tokens on a plane" }).waitFor();

  // Without prefers-reduced-motion it can play, to its end.
  await page.emulateMedia({ reducedMotion: "no-preference" });
  await slider.press("Home");
  await page.getByRole("button", { name: "Play" }).click();
  await at(7);
  result.played = (await status()).split(",")[0];
  await page.getByRole("button", { name: "Play" }).waitFor();

  await page.goto(`${new URL(page.url()).origin}/#/attention`);
  await page.waitForSelector("figure .lines > svg");
  result.layers = await titles();
  result.weights = await saved(page, page.locator("figure").first(), "CSV");
});
