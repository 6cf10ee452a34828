// The positions view in a real browser: pictures of the loaded table, and of schemes.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/positions?rows=64`);
const path = page.locator("figure", { hasText: "The path of the positions" });
await path.locator("canvas").waitFor();
result.figures = await page.locator("figure h3").allInnerTexts();
result.csv = await saved(page, path, "CSV");
result.svg = await saved(page, path, "SVG");
result.note = await page.locator("figure", { hasText: "The norm of each" }).locator("figcaption p").innerText();
result.violations = await violations(page);

// The path is walked by arrow keys; other axes stand in the address.
await path.getByRole("application").focus();
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowRight");
await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent.startsWith("position 2:"));
result.spoken = await page.textContent('[aria-live="polite"]');
await path.getByLabel("components").selectOption("2,3");
await page.waitForFunction(() => location.hash.includes("axes"));
result.address = page.url();

result.columns = await saved(page, page.locator("figure", { hasText: "Single features by position" }), "CSV");
await page.getByLabel("where").selectOption("sinusoidal");
await page.getByRole("heading", { name: "Wavelength of each pair" }).waitFor();
result.sinusoid = await page.locator("figure h3").allInnerTexts();
result.bar = await page.locator("figure").first().locator(".bar").innerText();

// A scheme that depends on queries and keys has no figure, and the view explains it.
await page.getByLabel("where").selectOption("cope");
await page.waitForSelector(".lead");
result.content = await page.locator(".lead").innerText();
result.requests = seen.requests;
result.complaints = seen.complaints;
await context.close();
result.small = await small(started, `${given.url}#/positions?rows=32&scheme=rotary`, "figure canvas");
await started.close();
report(result);
