// Overview: sentences, tables and figures, live, exported, and without JavaScript.
import { pathToFileURL } from "node:url";
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();

async function read(page) {
  await page.waitForSelector("main .answer");
  return {
    answer: await page.locator(".answer").innerText(),
    titles: await page.locator("main h2").allInnerTexts(),
    texts: await page.locator("main section > .beside > p, main section > p").allInnerTexts(),
    sizes: await page.locator('[aria-label="Parameters and bytes by part"] tbody tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))),
    charts: await page.locator("main figure .lines").count(),
  };
}

const live = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await live.page.goto(`${given.url}#/overview?section=positions`);
result.live = await read(live.page);
result.focused = await live.page.evaluate(() => document.activeElement.textContent);
result.more = {};
for (const name of ["Diagnostics", "Positions"]) result.more[name] = await live.page.locator("main section").getByRole("link", { name, exact: true }).getAttribute("href");
result.card = await live.page.getByRole("link", { name: "#7", exact: true }).getAttribute("href");
result.csv = await saved(live.page, live.page.locator("figure").first(), "CSV");
result.parts = await saved(live.page, live.page.getByRole("region", { name: "Sizes" }), "CSV");
result.light = await violations(live.page);
result.small = await small(started, `${given.url}#/overview`, ".answer");

const file = String(pathToFileURL(given.file));
const exported = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "dark", offline: true });
await exported.page.goto(file);
result.exported = await read(exported.page);
result.exported.view = await exported.page.locator("h1").innerText();
result.exported.first = await exported.page.locator("nav a").first().innerText();
result.exported.requests = exported.seen.requests;
result.dark = await violations(exported.page);

const plain = await watched(started, { javaScriptEnabled: false });
await plain.page.goto(file);
result.plain = await plain.page.locator("body").innerText();

result.complaints = [...live.seen.complaints, ...exported.seen.complaints];
await started.close();
report(result);
