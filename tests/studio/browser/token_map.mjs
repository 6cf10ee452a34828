// The token map: true neighbors, a rectangle, groups, and a map that is computed by a job, stopped, and computed again.
import { given, saved, used } from "./driving.mjs";

const settled = (page) => page.waitForFunction(() => document.querySelector(".scatter canvas")?.dataset.milliseconds && document.querySelector(".near"));

await used(`#/map?method=pca&token=%23${given.token}`, ".near", async (page, result) => {
  await settled(page);
  const figure = page.locator("figure.figure").first();
  result.printed = await page.locator(".printed span").allInnerTexts();
  result.note = await figure.locator("figcaption p").innerText();
  result.folded = await page.locator("main .folded:not([open])").count();
  result.near = await page.locator(".chips li .token").allInnerTexts();
  result.cosines = await page.locator(".chips li small").allInnerTexts();
  result.of = await page.locator(".near .note").innerText();
  result.line = await page.locator(".scatter .under bdi").innerText();
  result.csv = await saved(page, figure, "CSV");
  result.svg = await saved(page, figure, "SVG");

  // From point to point by keyboard; the one with a ring by the pointer.
  const token = () => new URLSearchParams(page.url().split("?")[1]).get("token");
  const changed = async (act) => {
    const before = token();
    await act();
    await page.waitForFunction((before) => new URLSearchParams(location.hash.split("?")[1]).get("token") !== before, before);
    if (token()) await page.waitForFunction((token) => document.querySelector(".near h2 a")?.textContent === token, token());
    return token();
  };
  await page.locator(".scatter .chart").focus();
  const press = (key) => changed(() => page.keyboard.press(key));
  result.walked = [await press("Escape"), await press("n"), await press("p"), await press("n")];
  const ring = page.locator(".scatter .over circle").first();
  const [x, y] = [Number(await ring.getAttribute("cx")), Number(await ring.getAttribute("cy"))];
  result.walked.push(await press("Escape"), await changed(() => page.locator(".scatter canvas").click({ position: { x, y } })));

  // A rectangle by the keyboard holds all; by the pointer, what it covers; the address holds it.
  await page.locator(".scatter .chart").focus();
  await page.keyboard.press("s");
  result.all = await page.locator('[aria-label="Selected tokens"] h2').innerText();
  // Of a table of many rows a few are drawn, and the right ones.
  const table = page.getByRole("region", { name: "Selected tokens" }).last();
  await table.evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await page.waitForFunction(() => document.querySelector(".scroll.tall").innerText.includes("399"));
  result.drawn_rows = await table.locator("tbody tr").count();
  result.last = await table.locator("tbody tr").last().innerText();
  await page.getByText("colors and filters").click();
  await page.getByLabel("drag selects").check();
  await page.locator(".scatter canvas").evaluate((canvas) => canvas.scrollIntoView({ block: "end" }));
  const area = await page.locator(".scatter canvas").boundingBox();
  await page.mouse.move(area.x + area.width / 2, area.y + 1);
  await page.mouse.down();
  await page.mouse.move(area.x + area.width - 1, area.y + area.height - 1, { steps: 3 });
  await page.mouse.up();
  await page.waitForFunction((before) => document.querySelector('[aria-label="Selected tokens"] h2').innerText !== before, result.all);
  result.half = await page.locator('[aria-label="Selected tokens"] h2').innerText();
  result.rows = await page.locator('[aria-label="Selected tokens"] tbody tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
  result.box = new URL(page.url()).hash;
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByLabel("drag selects").uncheck();

  // A pattern, and its reset.
  await page.getByLabel("find").fill("^#*9$");
  await page.getByRole("heading", { name: "pass the filters" }).waitFor();
  result.found = [await page.locator('[aria-label="Filter"] [role=status]').innerText(), await page.getByRole("heading", { name: "pass the filters" }).innerText()];
  await page.getByRole("button", { name: "Reset" }).click();
  result.reset = await page.getByLabel("find").inputValue();

  // One group before the others; colors by amount; what stands in for frequency says so.
  const group = page.locator(".groups button").first();
  await group.click();
  result.only = [await group.innerText(), await group.getAttribute("aria-pressed"), new URL(page.url()).hash];
  await page.getByLabel("colored by").selectOption("frequency");
  await page.waitForFunction(() => document.querySelector("figcaption p").innerText.includes("proxy"));
  result.bar = await page.locator(".scatter .under .bar").innerText();

  // A job begins by itself, is stopped, then runs to its end; the map of it is there again after a reload.
  await page.getByLabel("laid out by").selectOption("tsne");
  await page.waitForSelector(".progress progress");
  await page.waitForFunction(() => document.querySelector(".progress").innerText.includes("step"));
  result.progress = await page.locator(".progress span").innerText();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Draw by t-SNE" }).click();
  await page.getByRole("heading", { name: "by t-SNE" }).waitFor();
  result.drawn = await page.locator(".printed span").allInnerTexts();
  await page.reload();
  await page.getByRole("heading", { name: "by t-SNE" }).waitFor();
  result.without = await page.getByRole("button", { name: "Draw by t-SNE" }).count();

  // A named set is drawn alone, with all its labels; what is not a token is named.
  await page.getByText("only some tokens").click();
  await page.getByLabel("Only these tokens").fill("a: #1, #2, #3; b: #4, nothing");
  await page.getByRole("button", { name: "Draw these" }).click();
  await page.getByRole("heading", { name: "named tokens by PCA" }).waitFor();
  result.named = [await page.locator("p.answer").innerText(), await figure.locator("h3").innerText(), await page.getByText("Not drawn").innerText()];
  result.labels = await saved(page, figure, "SVG");
  await page.getByRole("button", { name: "All tokens" }).click();

  // A method whose package is missing says how to get it, and shows what there is.
  await page.getByLabel("laid out by").selectOption("umap");
  await page.getByText("pip install").waitFor();
  result.missing = await page.locator(".wrong").innerText();
  result.title = await figure.locator("h3").innerText();

  // A map that has left is drawn no more, though its last frame was still to come.
  const url = page.url().replace(/#.*/, "");
  for (let round = 0; round < 5; round++) {
    await page.goto(`${url}#/map`);
    await settled(page);
    await page.evaluate(
      () =>
        new Promise((done) => {
          document.querySelector(".scatter canvas").dispatchEvent(new WheelEvent("wheel", { deltaY: -40, bubbles: true, cancelable: true }));
          requestAnimationFrame(() => setTimeout(() => ((location.hash = "#/positions"), setTimeout(done, 100))));
        }),
    );
  }
});
