// Every view in Firefox: by keyboard, drawn by the studio and from the disk as one file, saved as a picture, light and dark.
import { readdirSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { browser, given, opened, report, watched } from "./driving.mjs";

const SOON = 100; // tenths of a second

/** Wait for what the page does not tell. */
async function until(done) {
  for (let tenth = 0; tenth < SOON && !done(); tenth++) await setTimeout(100);
}

const started = await browser();
const result = { browser: started.browserType().name() };
const { page, seen } = await watched(started, { viewport: { width: 1280, height: 1000 } });
await page.goto(given.url);
await page.waitForSelector("nav a");
result.focused = [];
for (let step = 0; step < 16; step++) {
  await page.keyboard.press("Tab");
  result.focused.push(await page.evaluate(() => `${document.activeElement.tagName} ${getComputedStyle(document.activeElement).outlineStyle}`));
}
result.views = await opened(page, given.shown);

await page.getByRole("link", { name: "Positions", exact: true }).click();
const figure = page.locator("main figure").first();
await figure.waitFor();
// Playwright does not hear of what Firefox saves from memory, and so the file is looked for.
await figure.getByText("Save").click();
await figure.getByRole("button", { name: "as SVG" }).click();
await until(() => readdirSync(given.saved).length === 1);
const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
result.light = await ground();
await page.getByRole("button", { name: "dark" }).click();
result.dark = await ground();

await page.goto(String(pathToFileURL(given.file)));
await page.waitForSelector("nav a");
result.exported = await opened(page, given.shown);
result.complaints = seen.complaints;
await started.close();
report(result);
