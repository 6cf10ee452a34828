// Views 11 and 12 in a real browser: a run of a comparison, scrubbed, played, and its heads.
import { browser, given, saved, small, tell, violations, watched } from "./driving.mjs";

const found = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/replay`);
await page.waitForSelector(".still img");
const said = () => page.locator(".replay output").innerText();
const slider = page.getByRole("slider", { name: "Step" });
const picture = () => page.locator(".still img").first().getAttribute("src");
found.titles = await page.locator("figure h3").allInnerTexts();
found.play = await page.getByRole("button", { name: "Play" }).count();
found.opened = await said();
found.wrong = await violations(page);
await slider.press("Home");
await page.waitForFunction(() => document.querySelector(".replay output").textContent.startsWith("step 0"));
found.first = await said();
const before = await picture();
await slider.press("End");
await page.waitForFunction(() => document.querySelector(".replay output").textContent.startsWith("step 7"));
found.moved = (await picture()) !== before;
found.last = await said();
found.address = new URL(page.url()).hash;
found.line = await page.locator("figure", { hasText: "The digits on a line" }).locator("figcaption p").innerText();
found.csv = await saved(page, page.locator("figure", { hasText: "on a plane" }), "CSV");
await page.getByRole("button", { name: "Show the page dark" }).click();
found.dark = await violations(page);
await page.getByRole("combobox", { name: "show" }).selectOption("table");
await page.getByRole("heading", { name: "The tokens on a plane" }).waitFor();

// Who has not asked for less motion may let it play, to its end.
await page.emulateMedia({ reducedMotion: "no-preference" });
await slider.press("Home");
await page.getByRole("button", { name: "Play" }).click();
await page.waitForFunction(() => document.querySelector(".replay output").textContent.startsWith("step 7"));
found.played = (await said()).split(",")[0];
await page.getByRole("button", { name: "Play" }).waitFor();

await page.goto(`${new URL(given.url).origin}/#/attention`);
await page.waitForSelector("figure canvas");
found.layers = await page.locator("figure h3").allInnerTexts();
found.weights = await saved(page, page.locator("figure").first(), "CSV");
found.weighed = await violations(page);
await context.close();
found.small = [
  await small(started, `${given.url}#/replay?at=3`, ".still img"),
  await small(started, `${given.url}#/attention?log=true`, "figure canvas"),
];
found.requests = [...seen.requests, ...found.small.flatMap((each) => each.requests)];
found.complaints = seen.complaints;
await started.close();
tell(found);
