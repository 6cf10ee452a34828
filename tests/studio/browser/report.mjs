// The report of a comparison, opened from the disk with the network off: what it opens on, all its views, and on paper.
import { pathToFileURL } from "node:url";
import { browser, complaints, given, opened, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light", offline: true });
page.on("dialog", (dialog) => (seen.complaints.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
const file = String(pathToFileURL(given.file));
await page.goto(file);
await page.waitForSelector(".answer");
result.title = await page.locator("h1").innerText();
result.views = await page.locator("nav a").allInnerTexts();
result.answer = await page.locator(".answer").textContent();
result.main = await page.locator("main").textContent();
const cells = (tables) => tables.map((table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.replace(/ [↕↓↑]$/, ""))));
result.summary = await page.getByRole("region", { name: /^(Scores|Costs)$/ }).locator("table").evaluateAll(cells);
result.fold = await page.locator("figure").first().evaluate((figure) => [figure.querySelector("h3").textContent, figure.getBoundingClientRect().bottom]);
result.wrong = [];
if (given.fingerprint) {
  result.wrong.push(...(await violations(page)));
  await page.getByRole("button", { name: "Show the page dark" }).click();
  result.wrong.push(...(await violations(page, ["color-contrast"])));
}
await page.emulateMedia({ media: "print" });
await page.setViewportSize({ width: 794, height: 1123 });
// What paper cuts off: boxes that would have to be scrolled.
result.cut = await page.locator("pre, .scroll").evaluateAll((boxes) => boxes.filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth).map((box) => box.innerText.slice(0, 60)));
result.wide = await page.locator("main :is(.lines, .lines > svg, .heat svg, table, .still svg)").evaluateAll((all) => all.filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.className || each.tagName));
result.paper = await page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue("--page"));
await page.emulateMedia({ media: "screen" });
await page.setViewportSize({ width: 1400, height: 1000 });
if (given.fingerprint) {
  result.csv = await saved(page, page.locator("figure", { hasText: given.fingerprint }), "CSV");
  await page.getByRole("link", { name: "Training replay" }).click();
  await page.waitForSelector(".still text");
  result.replay = await page.locator(".replay output").innerText();
  result.runs = await page.getByRole("combobox", { name: "run" }).locator("option").allInnerTexts();
  result.replayed = await violations(page);
}

result.opened = await opened(page, "main figure, main .note, main .answer");
if (given.fingerprint) {
  // Ask offers what it can answer alone.
  await page.getByRole("link", { name: "Ask", exact: true }).click();
  await page.locator(".asked .value").first().waitFor();
  const answers = () => page.locator(".asked .value").allInnerTexts();
  result.asked = [await page.locator(".examples button").allInnerTexts(), await page.locator("main :is(input, select)").count(), await answers()];
  await page.getByRole("button", { name: "Shift all positions by 1" }).click();
  await page.getByRole("button", { name: "Reset positions" }).waitFor();
  await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
  result.asked.push(await page.locator(".moved .changed").allInnerTexts(), await answers());
}
await context.close();

const plain = await watched(started, { javaScriptEnabled: false });
await plain.page.goto(file);
result.plain = await plain.page.locator("noscript").textContent();
await plain.context.close();
if (given.fingerprint) result.wrong.push(...(await small(started, file, ".answer")));
result.wrong.push(...complaints(seen));
await started.close();
report(result);
