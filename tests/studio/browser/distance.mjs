// The distance view in a real browser: schemes are chosen, and drawn on one axis.
import { browser, given, saved, small, tell, violations, watched } from "./driving.mjs";

const found = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/distance?distances=64&head=1`);
const figure = page.locator("figure", { hasText: "All on one axis" });
await figure.locator("canvas").waitFor();
const names = () => page.locator(".schemes label:has(input:checked) .name bdi").allInnerTexts();
found.groups = await page.locator(".schemes legend").allInnerTexts();
found.chosen = await names();
found.figures = await page.locator("figure h3").allInnerTexts();
found.light = await violations(page);
found.csv = await saved(page, figure, "CSV");

// Another scheme, by keyboard; the address says which.
await page.getByRole("checkbox", { name: /^fox/ }).press("Space");
await page.waitForFunction(() => location.hash.includes("fox"));
found.then = await names();
found.address = new URL(page.url()).hash;

// Curves are read by arrow keys.
await figure.getByRole("application").focus();
await page.keyboard.press("Home");
await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent.startsWith("distance 1:"));
found.read = await page.textContent('[aria-live="polite"]');
found.complaints = seen.complaints;
found.requests = seen.requests;
await context.close();
found.small = await small(started, `${given.url}#/distance?distances=64&log=false`, ".schemes");
await started.close();
tell(found);
