// Ask in a real browser: a question is typed, a position is changed by hand, a run is chosen, and all is saved.
import { browser, given, report, saved, small, violations, watched } from "./driving.mjs";

const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/ask`);
const result = { violations: [] };
const quiet = () => page.waitForFunction(() => !document.querySelector(".stale, .waiting, [aria-busy=true]"));
const figure = (title) => page.locator("figure", { has: page.getByRole("heading", { name: title }) });
const positions = () => page.locator(".moved input").evaluateAll((all) => all.map((each) => each.value));
await page.waitForSelector(".heads canvas");
await page.keyboard.press("Control+k");
await page.keyboard.press("Control+a");
await page.keyboard.type(given.text);
await page.waitForFunction((first) => document.querySelector(".moved .token")?.textContent === first, "First");
await page.getByLabel("runs").selectOption("1");
await page.waitForFunction(() => document.querySelector(".asked button")?.textContent.includes("seed 1"));
await page.getByRole("button", { name: "learned, seed 1" }).click();
await page.getByRole("heading", { name: "Attention of learned, seed 1" }).waitFor();
await quiet();
result.tokens = await page.locator(".moved .token").allInnerTexts();
result.positions = await positions();
result.csv = await saved(page, figure("Answers"), "CSV");
result.violations.push(...(await violations(page)));

// One position by hand: the answers change at once, and the address has it.
await page.getByLabel("position of token 7, )").fill("2");
await page.waitForFunction(() => document.querySelector(".asked .value")?.textContent.includes("before"));
await page.waitForFunction(() => location.hash.includes("positions="));
await quiet();
result.address = new URL(page.url()).hash;
result.weights = await saved(page, figure("Attention of"), "CSV");
result.svg = await saved(page, figure("Attention of"), "SVG");
await page.locator(".heads .chart").first().focus();
await page.keyboard.press("ArrowDown");
result.cell = await page.locator(".heads .tip").innerText();
await page.getByRole("button", { name: "Show the page dark" }).click();
result.violations.push(...(await violations(page)));
await page.getByRole("button", { name: "Reset positions" }).click();
await page.waitForFunction(() => !document.querySelector(".moved input.changed"));
result.reset = await positions();

await page.getByLabel("Question").fill("Sum(1)");
await page.waitForSelector("main [role=alert]");
result.refused = await page.locator("main [role=alert]").innerText();
result.requests = seen.requests;
result.complaints = seen.complaints;
await context.close();
result.small = await small(started, `${given.url}#/ask`, ".heads canvas");
await started.close();
report(result);
