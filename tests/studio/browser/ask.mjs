// Ask in a real browser: a question is typed, a position is changed by hand, a run is chosen, and all is saved.
import { figureOf, given, quiet, saved, used } from "./driving.mjs";

await used("#/ask", ".heads image", async (page, result) => {
  const positions = () => page.locator(".moved input").evaluateAll((all) => all.map((each) => each.value));
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Control+a");
  await page.keyboard.type(given.text);
  await page.waitForFunction((first) => document.querySelector(".moved .token")?.textContent === first, "First");
  await page.getByLabel("runs").selectOption("1");
  await page.waitForFunction(() => document.querySelector(".asked button")?.textContent.includes("seed 1"));
  await page.getByRole("button", { name: "learned, seed 1", exact: true }).click();
  await page.getByRole("heading", { name: "Attention of learned, seed 1" }).waitFor();
  await quiet(page);
  result.tokens = await page.locator(".moved .token").allInnerTexts();
  result.positions = await positions();
  result.csv = await saved(page, figureOf(page, "Answers"), "CSV");

  // One position by hand: the answers change at once, and the address has it.
  await page.getByLabel("position of token 7, )").fill("2");
  await page.waitForFunction(() => document.querySelector(".asked .value")?.textContent.includes("before"));
  await page.waitForFunction(() => location.hash.includes("positions="));
  await quiet(page);
  result.address = new URL(page.url()).hash;
  const heads = figureOf(page, "Attention of");
  result.weights = await saved(page, heads, "CSV");
  result.svg = await saved(page, heads, "SVG");
  await heads.getByRole("application").first().focus();
  await page.keyboard.press("ArrowDown");
  result.cell = await heads.locator(".tip").innerText();
  await page.getByRole("button", { name: "Reset positions" }).click();
  await page.waitForFunction(() => !document.querySelector(".moved input.changed"));
  result.reset = await positions();

  await page.getByLabel("Question").fill("Sum(1)");
  await page.waitForSelector("main [role=alert]");
  result.refused = await page.locator("main [role=alert]").innerText();
});
