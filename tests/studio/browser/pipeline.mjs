// The pipeline in a real browser: a text is typed, its steps are walked by keyboard, their numbers saved.
import { quiet, saved, used, violations } from "./driving.mjs";

await used("#/pipeline", ".equation", async (page, result) => {
  result.idle = await page.locator(".ways .idle").allTextContents();

  // Another text, and a scheme with all three doors.
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("A dog");
  await page.waitForFunction(() => document.querySelectorAll(".chips .chip").length === 4);
  await page.getByLabel("where").selectOption("sinusoidal+rotary+alibi");
  await page.getByLabel("causal mask").check();
  await page.waitForFunction(() => document.querySelector(".equation")?.textContent.includes("bias("));
  result.chips = await page.locator(".chips").first().locator(".chip").allTextContents();

  // It begins with the sum; every step by the button that leads on.
  result.begins = await page.locator("figure h3").first().innerText();
  await page.getByRole("button", { name: "1 Tokens" }).click();
  result.steps = [];
  result.violations = [];
  const next = page.getByRole("button", { name: "Next" });
  const figure = page.locator("figure").last();
  for (;;) {
    const step = new URLSearchParams(page.url().split("?")[1]).get("step") ?? "sum";
    result.steps.push(step);
    await quiet(page);
    if (step === "tokens") result.ids = await page.locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.cells[2].textContent));
    if (step === "sum") result.csv = await saved(page, figure, "CSV");
    if (step === "score") result.scores = await saved(page, figure, "CSV");
    if (step === "rotation") {
      await page.getByRole("spinbutton", { name: "pair, exactly" }).fill("3");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector("figcaption h3").textContent.startsWith("The pair (3,"));
      result.turned = await page.getByRole("img", { name: "The pair (3," }).locator("text").allTextContents();
      result.violations.push(...(await violations(page)));
    }
    if (await next.isDisabled()) break;
    await next.press("Enter");
    await page.waitForFunction((before) => !location.hash.includes(before), `step=${step}`);
  }
  result.equation = await page.locator(".equation").innerText();

  // Nothing to follow.
  await page.getByLabel("Text", { exact: true }).fill(" ");
  await page.waitForSelector(".lead");
  result.refused = await page.locator(".lead").innerText();
});
