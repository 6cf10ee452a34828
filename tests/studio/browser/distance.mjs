// The distance view in a real browser: schemes are chosen, and drawn on one axis.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/distance?distances=64&head=1`);
const figure = page.locator("figure", { hasText: "All on one axis" });
await figure.locator(".lines > svg").waitFor();
const names = () => page.locator(".schemes label:has(input:checked) .name bdi").allInnerTexts();
result.groups = await page.locator(".schemes legend").allInnerTexts();
result.chosen = await names();
result.figures = await page.locator("figure h3").allInnerTexts();
result.light = await violations(page);
result.csv = await saved(page, figure, "CSV");

// Another scheme, by keyboard; the address says which.
await page.getByRole("checkbox", { name: /^fox/ }).press("Space");
await page.waitForFunction(() => location.hash.includes("fox"));
result.then = await names();
result.address = new URL(page.url()).hash;

// Curves are read by arrow keys.
await figure.getByRole("application").focus();
await page.keyboard.press("Home");
await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent.startsWith("distance 1:"));
result.read = await page.textContent('[aria-live="polite"]');
result.complaints = seen.complaints;
result.requests = seen.requests;
await context.close();
result.small = await small(started, `${given.url}#/distance?distances=64&log=false`, ".schemes");
await started.close();
report(result);
