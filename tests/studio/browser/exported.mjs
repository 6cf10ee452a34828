// The page as one file: from the disk, without JavaScript, and in a frame of a notebook that lets it do little.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { browser, download, given, opened, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
const file = String(pathToFileURL(given.file));
await page.goto(`${file}#/tokens`);
await page.waitForSelector(".analogy .bars li");
result.views = await page.locator("nav a").allInnerTexts();
result.near = await page.locator(".two .lists section").first().locator(".name").allInnerTexts();
result.head = await page.locator(".open").innerText();
await page.keyboard.press("Control+k");
await page.keyboard.type(given.part);
await page.waitForSelector('[role="option"]');
result.options = await page.locator('[role="option"] .token').allInnerTexts();
await page.keyboard.press("ArrowDown");
await page.keyboard.press("Enter");
await page.waitForSelector('[role="alert"]');
result.refused = await page.locator('[role="alert"]').first().innerText();
await page.goto(`${file}#/map?token=%23${given.token}`);
await page.waitForSelector(".chips");
result.chips = await page.locator(".chips .token").allInnerTexts();
result.cosines = await page.locator(".chips small").allInnerTexts();
result.layouts = await page.getByLabel("laid out by").locator("option").allInnerTexts();
result.violations = await violations(page);
await page.getByRole("link", { name: "Diagnostics" }).click();
await page.waitForSelector(".answer");
result.address = page.url();

result.opened = await opened(page);
await context.close();

const plain = await watched(started, { javaScriptEnabled: false });
await plain.page.goto(file);
result.plain = await plain.page.locator("noscript, body").first().innerText();
await plain.context.close();

// What the file is not allowed to do, it cannot: its policy stops a script and a request that it did not bring.
const strict = await watched(started, {});
await strict.page.goto(file);
result.stopped = await strict.page.evaluate(async () => {
  const script = document.createElement("script");
  script.textContent = "globalThis.ran = true";
  document.body.append(script);
  const sent = await fetch("http://127.0.0.1:9/").then(() => "sent", () => "stopped");
  return [globalThis.ran ?? false, sent];
});
await strict.context.close();

const framed = await watched(started, { viewport: { width: 1200, height: 900 } });
await framed.page.setContent(`<!doctype html><title>notebook</title>${readFileSync(given.frame, "utf8")}`);
const frame = framed.page.frameLocator("iframe");
await frame.getByRole("link", { name: "Token map" }).click();
await frame.locator(".chips button").first().click();
await frame.locator(".near h2").waitFor();
result.framed = await frame.locator("h1").innerText();
result.outside = framed.page.url();
result.saved = (await download(framed.page, frame.locator("figure").first(), "CSV")).suggestedFilename();

result.requests = [...seen.requests, ...framed.seen.requests];
result.complaints = [...seen.complaints, ...framed.seen.complaints];
await started.close();
report(result);
