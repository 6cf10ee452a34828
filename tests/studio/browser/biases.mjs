// The biases in a real browser: the model's own learned table first, then schemes of the catalogue.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/biases?tokens=8`);
const matrix = page.locator("figure", { hasText: "query by key" });
await matrix.locator("canvas").first().waitFor();
const which = page.getByRole("combobox", { name: "bias" });
result.choices = await which.locator("option").allInnerTexts();
result.own = await page.locator("main .note").first().innerText();
result.matrix = await saved(page, matrix, "CSV");
result.light = await violations(page);

// A cell is read by arrow keys: query 2, key 1.
await matrix.getByRole("application").focus();
for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"]) await page.keyboard.press(key);
result.cell = await matrix.locator(".tip").innerText();

// Another bias, another head.
await which.selectOption("alibi");
await page.waitForFunction(() => document.querySelectorAll(".ranges li").length === 8);
await page.locator(".ranges").getByRole("button", { name: "head 3" }).click();
await page.waitForFunction(() => document.querySelector("figure h3").textContent.includes("head 3"));
result.bar = await matrix.locator(".bar").innerText();
result.address = new URL(page.url()).hash;
result.reach = await page.locator(".ranges .value").allInnerTexts();
const reaches = page.locator("figure", { hasText: "Effective range of each head" });
result.csv = await saved(page, reaches, "CSV");
result.svg = await saved(page, reaches, "SVG");
await matrix.getByText("How was this computed?").press("Enter");
result.how = await matrix.locator(".how pre").innerText();
await which.selectOption("t5");
await page.getByRole("slider", { name: "num_buckets" }).waitFor();
const before = await page.locator("figure .heat canvas").first().evaluate((canvas) => canvas.toDataURL());
await page.getByRole("button", { name: "Sample again" }).click();
await page.waitForFunction((was) => document.querySelector("figure .heat canvas").toDataURL() !== was, before);
result.seed = new URL(page.url()).hash;
result.complaints = seen.complaints;
result.requests = seen.requests;
await context.close();
result.small = await small(started, `${given.url}#/biases?scheme=fire&weights=true`, ".ranges li");
await started.close();
report(result);
