// Views 11 and 12 in a real browser: a run of a comparison, scrubbed, played, and its heads.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/replay`);
await page.waitForSelector(".still img");
const status = () => page.locator(".replay output").innerText();
const slider = page.getByRole("slider", { name: "Step" });
const picture = () => page.locator(".still img").first().getAttribute("src");
result.titles = await page.locator("figure h3").allInnerTexts();
result.play = await page.getByRole("button", { name: "Play" }).count();
result.opened = await status();
result.wrong = await violations(page);
await slider.press("Home");
await page.waitForFunction(() => document.querySelector(".replay output").textContent.startsWith("step 0"));
result.first = await status();
const before = await picture();
await slider.press("End");
await page.waitForFunction(() => document.querySelector(".replay output").textContent.startsWith("step 7"));
result.moved = (await picture()) !== before;
result.last = await status();
result.address = new URL(page.url()).hash;
result.line = await page.locator("figure", { hasText: "The digits on a line" }).locator("figcaption p").innerText();
result.csv = await saved(page, page.locator("figure", { hasText: "on a plane" }), "CSV");
await page.getByRole("button", { name: "Show the page dark" }).click();
result.dark = await violations(page);
await page.getByRole("combobox", { name: "show" }).selectOption("table");
await page.getByRole("heading", { name: "The tokens on a plane" }).waitFor();

// Without prefers-reduced-motion it can play, to its end.
await page.emulateMedia({ reducedMotion: "no-preference" });
await slider.press("Home");
await page.getByRole("button", { name: "Play" }).click();
await page.waitForFunction(() => document.querySelector(".replay output").textContent.startsWith("step 7"));
result.played = (await status()).split(",")[0];
await page.getByRole("button", { name: "Play" }).waitFor();

await page.goto(`${new URL(given.url).origin}/#/attention`);
await page.waitForSelector("figure .lines > svg");
result.layers = await page.locator("figure h3").allInnerTexts();
result.weights = await saved(page, page.locator("figure").first(), "CSV");
result.weighed = await violations(page);
await context.close();
result.small = [
  await small(started, `${given.url}#/replay?at=3`, ".still img"),
  await small(started, `${given.url}#/attention?log=true`, "figure .lines > svg"),
];
result.requests = [...seen.requests, ...result.small.flatMap((each) => each.requests)];
result.complaints = seen.complaints;
await started.close();
report(result);
