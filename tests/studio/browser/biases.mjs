// The biases in a real browser: the model's own learned table first, then schemes of the catalogue.
import { figureOf, saved, used } from "./driving.mjs";

await used("#/biases?tokens=8", ".heat image", async (page, result) => {
  const matrix = figureOf(page, "query by key");
  const which = page.getByRole("combobox", { name: "bias" });
  const hash = () => new URL(page.url()).hash;
  result.choices = await which.locator("option").allInnerTexts();
  result.own = await page.locator("main .note").first().innerText();
  result.matrix = await saved(page, matrix, "CSV");

  // A cell is read by arrow keys: query 2, key 1.
  await matrix.getByRole("application").focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"]) await page.keyboard.press(key);
  result.cell = await matrix.locator(".tip").innerText();

  // Another bias, another head.
  await which.selectOption("alibi");
  await page.waitForFunction(() => document.querySelectorAll(".ranges li").length === 8);
  await page.locator(".ranges").getByRole("button", { name: "head 3" }).click();
  await page.waitForFunction(() => [...document.querySelectorAll("figure h3")].some((title) => title.textContent.includes("head 3,")));
  result.answer = await page.locator(".answer").innerText();
  result.first = await page.locator("figure h3").first().innerText();
  result.bar = await matrix.locator(".bar").innerText();
  result.address = hash();
  const reaches = figureOf(page, "Effective range of each head");
  result.reach = await reaches.locator(".value").allInnerTexts();
  result.csv = await saved(page, reaches, "CSV");
  result.svg = await saved(page, reaches, "SVG");
  result.how = await matrix.locator(".how pre").textContent();
  await which.selectOption("t5");
  await page.getByRole("slider", { name: "num_buckets" }).waitFor();
  const before = await page.locator(".heat image").getAttribute("href");
  await page.getByRole("button", { name: "Sample again" }).click();
  await page.waitForFunction((was) => document.querySelector(".heat image").getAttribute("href") !== was, before);
  result.seed = hash();
});
