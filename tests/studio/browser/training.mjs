// A comparison that is training, in a real browser: its curves grow, and its results open when it ends.
import { cpSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { browser, complaints, given, report, violations, watched } from "./driving.mjs";

const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 390, height: 860 } });
await page.goto(given.url);
await page.waitForSelector("figure .lines .series");
const result = { legend: await page.locator(".legend button").allInnerTexts(), wrong: await violations(page) };
const length = () => page.locator("figure .lines .series").last().evaluate((all) => all.innerHTML.length);
result.drawn = await length();
const run = readdirSync(given.folder, { recursive: true }).find((name) => name.endsWith("0.json") && name.startsWith("."));
const losses = JSON.parse(readFileSync(join(given.folder, run), "utf8"));
losses.losses.push([3, 2.5], [4, 2.25]);
writeFileSync(join(given.folder, run), JSON.stringify(losses));
await page.waitForFunction((before) => [...document.querySelectorAll("figure .lines .series")].at(-1).innerHTML.length > before, result.drawn);
result.grown = await length();
cpSync(given.results, given.folder, { recursive: true });
await page.waitForFunction(() => document.querySelector("h1")?.textContent === "Compare");
result.opened = await page.locator("nav [aria-current]").innerText();
result.wrong.push(...complaints(seen));
await started.close();
report(result);
