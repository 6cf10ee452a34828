// Overview: sentences, tables and figures, live, exported, and without JavaScript.
import { pathToFileURL } from "node:url";
import { complaints, figureOf, given, saved, used, violations, watched } from "./driving.mjs";

async function read(page) {
  await page.waitForSelector("main .answer");
  return {
    answer: await page.locator(".answer").innerText(),
    titles: await page.locator("main h2").allInnerTexts(),
    texts: await page.locator("main section .beside > p, main section > p").allTextContents(),
    sizes: await page.locator('[aria-label="Parameters and bytes by part"] tbody tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))),
    charts: await page.locator("main figure .lines").count(),
  };
}

await used("#/overview?section=positions", ".answer", async (page, result, context) => {
  result.live = await read(page);
  result.focused = await page.evaluate(() => document.activeElement.textContent);
  result.more = {};
  for (const name of ["Diagnostics", "Positions"]) result.more[name] = await page.locator("main section", { has: page.getByText("More: ") }).getByRole("link", { name, exact: true }).last().getAttribute("href");
  await page.getByRole("heading", { name: "Diagnostics of the token table" }).click();
  result.card = await page.getByRole("link", { name: "#7", exact: true }).getAttribute("href");
  result.csv = await saved(page, figureOf(page, "Histogram of the norms"), "CSV");
  result.parts = await saved(page, page.getByRole("region", { name: "Sizes" }), "CSV");

  const file = String(pathToFileURL(given.file));
  const exported = await watched(context.browser(), { colorScheme: "dark", offline: true });
  await exported.page.goto(file);
  result.exported = await read(exported.page);
  result.exported.view = await exported.page.locator("h1").innerText();
  result.exported.first = await exported.page.locator("nav a").first().innerText();
  result.exported.wrong = [...(await violations(exported.page)), ...complaints(exported.seen)];

  const plain = await watched(context.browser(), { javaScriptEnabled: false });
  await plain.page.goto(file);
  result.plain = await plain.page.locator("body").innerText();
});
