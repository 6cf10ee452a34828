// The token card in a real browser: opened by its address, used by keyboard, saved to files.
import { readFileSync } from "node:fs";
import { download, figureOf, given, saved, used, violations } from "./driving.mjs";

await used("#/tokens?token=king&k=5&a=man&b=king&c=woman", ".analogy .bars li", async (page, result, context) => {
  const hash = () => new URL(page.url()).hash;
  const lists = (within) =>
    page.locator(`${within} .lists section`).evaluateAll((sections) =>
      sections.map((section) => {
        const texts = (of) => [...section.querySelectorAll(of)].map((each) => each.textContent);
        return { name: section.getAttribute("aria-label"), words: texts(".name"), values: texts(".value") };
      }),
    );
  result.address = page.url();
  result.title = await page.title();
  result.big = await page.textContent(".card .big");
  result.facts = (await page.locator(".card dl").allInnerTexts()).join("\n");
  await page.waitForSelector(".two .lists section");
  result.lists = await lists(".two");
  result.analogy = await lists(".analogy");
  result.note = await page.locator(".card figcaption p").first().innerText();
  result.colors = await page.evaluate(async () => {
    const image = new Image();
    image.src = document.querySelector(".heat image").getAttribute("href");
    await image.decode();
    const context = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height }).getContext("2d");
    context.drawImage(image, 0, 0);
    return new Set(new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer)).size;
  });
  result.webgl = await page.evaluate(() => document.createElement("canvas").getContext("webgl2") !== null);

  // Files: what is saved holds what is shown.
  const figure = figureOf(page, "Nearest tokens");
  result.csv = await saved(page, figure, "CSV");
  result.svg = await saved(page, figure, "SVG");
  const png = readFileSync(await (await download(page, figure, "PNG")).path());
  result.png = { magic: png.subarray(1, 4).toString(), width: png.readUInt32BE(16), height: png.readUInt32BE(20) };

  // The table, opened and sorted by keyboard.
  await figure.getByText("The numbers, and how they were computed").press("Enter");
  const heading = figure.getByRole("columnheader", { name: "cosine" });
  await heading.getByRole("button").press("Enter");
  result.sort = await heading.getAttribute("aria-sort");
  result.sorted = await figure.locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.cells[5].textContent));
  result.how = await figure.locator(".how pre").innerText();

  // By keyboard to another token, and back.
  await page.keyboard.press("Control+k");
  await page.keyboard.type("quee");
  await page.waitForSelector('[role="option"]');
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector(".card .big")?.textContent === "queen");
  result.next = hash();
  await page.waitForFunction(() => !/^#/.test(document.querySelector("input[data-main]").value));
  result.field = await page.locator("input[data-main]").inputValue();
  await page.goBack();
  await page.waitForFunction(() => document.querySelector(".card .big")?.textContent === "king");
  result.back = hash();
  // Until they are answered, the rows are still those of the token before.
  await page.waitForFunction(() => document.querySelector(".two .lists .name")?.textContent.startsWith("king"));

  // The picture of rows is read by arrow keys.
  await page.locator(".heat .chart").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  result.cell = await page.locator(".heat .tip").innerText();
  await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent !== "");
  result.spoken = await page.textContent('[aria-live="polite"]');

  // What the server refuses is said in its words.
  await page.goto(`${given.base}/#/tokens?token=nosuchtokenatall`);
  await page.waitForSelector('[role="alert"]');
  result.refused = await page.locator('[role="alert"]').first().innerText();
  result.violations = await violations(page);

  // Without the key: no page, no answer.
  const stranger = await context.browser().newContext();
  result.stranger = (await (await stranger.newPage()).goto(`${given.base}/`)).status();
  await stranger.close();
});
