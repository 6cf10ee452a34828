// Diagnostics: lists, their evidence, and links that lead on.
import { browser, given, saved, small, tell, violations, watched } from "./driving.mjs";

const found = {};
const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/diagnostics?list=unreachable`);
await page.waitForSelector(".choices");
const counts = () => page.locator(".choices li").evaluateAll((rows) => rows.map((row) => [row.querySelector("button").textContent, row.querySelector(".value").textContent]));
found.counts = await counts();
const cells = () => page.locator('section[aria-label^="Rows:"] tbody tr:not(.spacer)').evaluateAll((rows) => rows.slice(0, 12).map((row) => [...row.cells].map((cell) => cell.textContent)));
found.unreachable = await cells();
await page.getByRole("button", { name: "under-trained" }).click();
await page.getByRole("heading", { name: "under-trained" }).waitFor();
found.underTrained = await cells();
found.hash = new URL(page.url()).hash;
found.light = await violations(page);
found.csv = await saved(page, page.locator("section.near"), "CSV");
found.chart = await page.getByRole("application", { name: "Cosine to the rows of lowest norm" }).getAttribute("aria-label");
found.map = await page.getByRole("link", { name: "on the map" }).first().getAttribute("href");
found.card = await page.locator("tbody td a").first().getAttribute("href");
await page.locator("tbody td a").first().click();
await page.waitForSelector(".card .big");
found.big = await page.locator(".card dl dd").first().innerText();
found.small = await small(started, `${given.url}#/diagnostics`, ".choices");
found.requests = seen.requests;
found.complaints = seen.complaints;
await started.close();
tell(found);
