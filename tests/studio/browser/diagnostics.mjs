// Diagnostics: lists, their evidence, and links that lead on.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/diagnostics?list=unreachable`);
await page.waitForSelector(".choices");
const counts = () => page.locator(".choices li").evaluateAll((rows) => rows.map((row) => [row.querySelector("button").textContent, row.querySelector(".value").textContent]));
result.counts = await counts();
const cells = () => page.locator('section[aria-label^="Rows:"] tbody tr:not(.spacer)').evaluateAll((rows) => rows.slice(0, 12).map((row) => [...row.cells].map((cell) => cell.textContent)));
result.unreachable = await cells();
await page.locator(".choices").getByRole("button", { name: "under-trained" }).click();
await page.getByRole("heading", { name: "under-trained" }).waitFor();
result.underTrained = await cells();
result.hash = new URL(page.url()).hash;
result.light = await violations(page);
result.csv = await saved(page, page.locator("section.near"), "CSV");
result.chart = await page.getByRole("application", { name: "Cosine to the rows of lowest norm" }).getAttribute("aria-label");
result.map = await page.getByRole("link", { name: "on the map" }).first().getAttribute("href");
result.card = await page.locator("tbody td a").first().getAttribute("href");
await page.locator("tbody td a").first().click();
await page.waitForSelector(".card .big");
result.big = await page.locator(".card dl dd").first().innerText();
result.small = await small(started, `${given.url}#/diagnostics`, ".choices");
result.requests = seen.requests;
result.complaints = seen.complaints;
await started.close();
report(result);
