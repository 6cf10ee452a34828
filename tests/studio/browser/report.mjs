// The report of a comparison, opened from the disk with the network off: what it opens on, all its views, and on paper.
import { pathToFileURL } from "node:url";
import { browser, given, opened, saved, small, tell, violations, watched } from "./driving.mjs";

const found = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light", offline: true });
page.on("dialog", (dialog) => (seen.complaints.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
const file = String(pathToFileURL(given.file));
await page.goto(file);
await page.waitForSelector(".answer");
found.title = await page.locator("h1").innerText();
found.views = await page.locator("nav a").allInnerTexts();
found.answer = await page.locator(".answer").textContent();
found.main = await page.locator("main").textContent();
found.head = await page.locator(".summary thead th").allInnerTexts();
found.summary = await page.locator(".summary tbody tr").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText)));
found.story = await page.locator("section[aria-labelledby=learned] .verdicts tbody tr").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText)));
found.titles = await page.locator("figure h3").allInnerTexts();
found.light = await violations(page);
await page.getByRole("button", { name: "Show the page dark" }).click();
found.dark = await violations(page);
await page.emulateMedia({ media: "print" });
await page.setViewportSize({ width: 794, height: 1123 });
// What paper cuts off: boxes that would have to be scrolled.
found.cut = await page.locator("pre, .scroll").evaluateAll((boxes) => boxes.filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth).map((box) => box.innerText.slice(0, 60)));
await page.emulateMedia({ media: "screen" });
await page.setViewportSize({ width: 1400, height: 1000 });
if (given.fingerprint) {
  found.csv = await saved(page, page.locator("figure", { hasText: given.fingerprint }), "CSV");
  await page.getByRole("link", { name: "step by step" }).click();
  await page.waitForSelector(".still img");
  found.replay = await page.locator(".replay output").innerText();
  found.runs = await page.getByRole("combobox", { name: "run" }).locator("option").allInnerTexts();
  found.replayed = await violations(page);
}

found.opened = await opened(page, "main figure, main .note");
await context.close();

const plain = await watched(started, { javaScriptEnabled: false });
await plain.page.goto(file);
found.plain = await plain.page.locator("body").innerText();
await plain.context.close();
found.small = await small(started, file, ".answer");
found.requests = [...seen.requests, ...found.small.requests];
found.complaints = seen.complaints;
await started.close();
tell(found);
