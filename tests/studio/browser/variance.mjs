// The variance split in a real browser: the split, and what it would be with longer token vectors.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/variance`);
await page.waitForSelector(".split");
result.sentence = await page.locator(".split").innerText();
result.bars = await page.locator(".stack").evaluateAll((bars) => bars.map((bar) => bar.getAttribute("aria-label")));
result.csv = await saved(page, page.locator("figure", { hasText: "With token vectors" }), "CSV");
result.balance = await page.locator("figure", { hasText: "With token vectors" }).locator("p").first().innerText();
result.violations = await violations(page);

const exactly = page.getByLabel("token vectors ×, exactly");
await exactly.fill("4");
await exactly.press("Enter");
await page.waitForFunction((before) => document.querySelector(".split").innerText !== before, result.sentence);
result.larger = await page.locator(".split").innerText();
result.address = page.url();
await page.goto(`${given.url}#/variance?scheme=none`);
await page.waitForSelector(".lead");
result.none = await page.locator(".lead").innerText();
result.requests = seen.requests;
result.complaints = [...seen.complaints];

// What was wrong with one question does not stand there as the answer to the next.
await page.goto(`${given.url}#/variance?scale=-4`);
await page.waitForSelector(".wrong");
let release;
const held = new Promise((resolve) => (release = resolve));
await page.route("**/query/variance.shares", async (route) => (await held, route.continue()));
await page.goto(`${given.url}#/variance?scale=2`);
await page.waitForSelector(".waiting");
result.wrong = await page.locator(".wrong").count();
release();
await page.waitForSelector(".split");
await context.close();
result.small = await small(started, `${given.url}#/variance`, ".split");
await started.close();
report(result);
