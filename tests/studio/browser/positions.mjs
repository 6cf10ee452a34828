// The positions view in a real browser: pictures of the loaded table, and of schemes.
import { browser, given, saved, small, tell, violations, watched } from "./driving.mjs";

const found = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/positions?rows=64`);
const path = page.locator("figure", { hasText: "The path of the positions" });
await path.locator("canvas").waitFor();
found.figures = await page.locator("figure h3").allInnerTexts();
found.csv = await saved(page, path, "CSV");
found.svg = await saved(page, path, "SVG");
found.note = await page.locator("figure", { hasText: "The norm of each" }).locator("figcaption p").innerText();
found.violations = await violations(page);

// The path is walked by arrow keys; other axes stand in the address.
await path.getByRole("application").focus();
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowRight");
await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent.startsWith("position 2:"));
found.spoken = await page.textContent('[aria-live="polite"]');
await path.getByLabel("components").selectOption("2,3");
await page.waitForFunction(() => location.hash.includes("axes"));
found.address = page.url();

// A scheme that depends on queries and keys has no figure, and the view explains it.
await page.getByLabel("where").selectOption("cope");
await page.waitForSelector(".lead");
found.content = await page.locator(".lead").innerText();
found.requests = seen.requests;
found.complaints = seen.complaints;
await context.close();
found.small = await small(started, `${given.url}#/positions?rows=32&scheme=rotary`, "figure canvas");
await started.close();
tell(found);
