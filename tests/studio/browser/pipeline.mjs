// The pipeline in a real browser: a text is typed, its steps are walked by keyboard, their numbers saved.
import { browser, given, saved, small, tell, violations, watched } from "./driving.mjs";

const found = { violations: [] };
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/pipeline?at=2&other=1`);
await page.waitForSelector(".equation");
found.idle = await page.locator(".ways .idle").allTextContents();

// Another text, and a scheme with all three doors.
await page.keyboard.press("Control+k");
await page.keyboard.press("Control+a");
await page.keyboard.type("A dog");
await page.waitForFunction(() => document.querySelectorAll(".chips:not(.large) .chip").length === 4);
await page.getByLabel("where").selectOption("sinusoidal+rotary+alibi");
await page.getByLabel("causal mask").check();
await page.waitForFunction(() => document.querySelector(".equation")?.textContent.includes("bias("));
found.chips = await page.locator(".chips").first().locator(".chip").allTextContents();
found.violations.push(...(await violations(page)));

// Every step by the button that leads on.
found.steps = [];
const next = page.getByRole("button", { name: "Next" });
const figure = page.locator("figure").last();
for (;;) {
  const step = new URLSearchParams(page.url().split("?")[1]).get("step") ?? "tokens";
  found.steps.push(step);
  await page.waitForFunction(() => !document.querySelector(".stale, .waiting"));
  if (step === "ids") found.ids = await page.locator(".chips.large small").evaluateAll((all) => all.map((each) => each.textContent.replaceAll(",", "")));
  if (step === "sum") found.csv = await saved(page, figure, "CSV");
  if (step === "score") found.scores = await saved(page, figure, "CSV");
  if (step === "rotation") {
    await page.locator('.figure input[type="range"]').fill("3");
    await page.waitForFunction(() => document.querySelector("figcaption h3").textContent.startsWith("The pair (3,"));
    found.turned = parseFloat(await page.locator(".dials li").nth(2).locator("small").innerText());
    await page.getByRole("button", { name: "Show the page dark" }).click();
    found.violations.push(...(await violations(page)));
  }
  if (await next.isDisabled()) break;
  await next.press("Enter");
  await page.waitForFunction((before) => !location.hash.includes(before), `step=${step}`);
}
found.equation = await page.locator(".equation").innerText();

// Nothing to follow.
await page.getByLabel("Text", { exact: true }).fill(" ");
await page.waitForSelector(".lead");
found.refused = await page.locator(".lead").innerText();
found.requests = seen.requests;
found.complaints = seen.complaints;
await context.close();
found.small = await small(started, `${given.url}#/pipeline?scheme=rotary&step=rotation`, ".dials");
await started.close();
tell(found);
