// The pipeline in a real browser: a text is typed, its steps are walked by keyboard, their numbers saved.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = { violations: [] };
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/pipeline?at=2&other=1`);
await page.waitForSelector(".equation");
result.idle = await page.locator(".ways .idle").allTextContents();

// Another text, and a scheme with all three doors.
await page.keyboard.press("Control+k");
await page.keyboard.press("Control+a");
await page.keyboard.type("A dog");
await page.waitForFunction(() => document.querySelectorAll(".chips:not(.large) .chip").length === 4);
await page.getByLabel("where").selectOption("sinusoidal+rotary+alibi");
await page.getByLabel("causal mask").check();
await page.waitForFunction(() => document.querySelector(".equation")?.textContent.includes("bias("));
result.chips = await page.locator(".chips").first().locator(".chip").allTextContents();
result.violations.push(...(await violations(page)));

// Every step by the button that leads on.
result.steps = [];
const next = page.getByRole("button", { name: "Next" });
const figure = page.locator("figure").last();
for (;;) {
  const step = new URLSearchParams(page.url().split("?")[1]).get("step") ?? "tokens";
  result.steps.push(step);
  await page.waitForFunction(() => !document.querySelector(".stale, .waiting"));
  if (step === "ids") result.ids = await page.locator(".chips.large small").evaluateAll((all) => all.map((each) => each.textContent.replaceAll(",", "")));
  if (step === "sum") result.csv = await saved(page, figure, "CSV");
  if (step === "score") result.scores = await saved(page, figure, "CSV");
  if (step === "rotation") {
    await page.locator('.figure input[type="range"]').fill("3");
    await page.waitForFunction(() => document.querySelector("figcaption h3").textContent.startsWith("The pair (3,"));
    result.turned = parseFloat(await page.locator(".dials li").nth(2).locator("small").innerText());
    await page.getByRole("button", { name: "Show the page dark" }).click();
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
result.requests = seen.requests;
result.complaints = seen.complaints;
await context.close();
result.small = await small(started, `${given.url}#/pipeline?scheme=rotary&step=rotation`, ".dials");
await started.close();
report(result);
