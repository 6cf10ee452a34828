// Views 11 and 12 where no run is open: one is trained here, and both views show it.
import { browser, given, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/replay?steps=2`);
await page.getByRole("button", { name: "Train it" }).click();
await page.waitForSelector(".still img");
result.output = await page.locator(".replay output").innerText();
result.scores = await page.locator("p.note").last().innerText();
result.wrong = await violations(page);
await page.goto(`${new URL(given.url).origin}/#/attention?steps=2`);
await page.waitForSelector("figure .lines > svg");
result.layers = await page.locator("figure h3").allInnerTexts();
await context.close();
result.complaints = seen.complaints;
await started.close();
report(result);
