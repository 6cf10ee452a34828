// View 10 in a real browser, on whatever is open: results, two checkpoints, or neither.
import { figureOf, given, saved, used } from "./driving.mjs";

/** Return the pairs of texts of a drawing that cover one another, and the texts that it cuts off. */
async function overprinted(context, svg) {
  const page = await context.newPage();
  await page.setContent(`<body style="margin: 0">${svg}`);
  const pairs = await page.evaluate(() => {
    const sheet = document.querySelector("svg").getBoundingClientRect();
    const boxes = [...document.querySelectorAll("svg text")].map((text) => ({ text: text.textContent, box: text.getBoundingClientRect() })).filter(({ text }) => text);
    const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
    const cut = boxes.filter(({ box }) => box.left < sheet.left - 1 || box.right > sheet.right + 1 || box.top < sheet.top - 1 || box.bottom > sheet.bottom + 1);
    return [...boxes.flatMap((a, n) => boxes.slice(n + 1).filter((b) => over(a.box, b.box)).map((b) => `${a.text} / ${b.text}`)), ...cut.map(({ text }) => `cut: ${text}`)];
  });
  await page.close();
  return pairs;
}

const textsOf = (svg) => [...svg.matchAll(/<text[^>]*>([^<]*)/g)].map((match) => match[1]);

await used("#/compare", given.ready, async (page, result, context) => {
  result.titles = await page.locator("figure h3").allTextContents(); // some are folded
  if (await page.locator(".difference").count()) {
    result.paragraphs = await page.locator(".difference > p, .beside > p").allTextContents();
    const moved = figureOf(page, "Tokens that moved most").first();
    result.bars = await moved.locator(".bars li").allInnerTexts();
    result.csv = await saved(page, moved, "CSV");
    result.texts = textsOf(await saved(page, moved, "SVG"));
    result.rotated = await saved(page, figureOf(page, "Cosine of a vector rotated by A and by B"), "CSV");
    return;
  }
  result.answer = await page.locator(".answer").textContent();
  const figure = figureOf(page, "Accuracy by length").first();
  result.csv = await saved(page, figure, "CSV");
  const svg = await saved(page, figure, "SVG");
  result.texts = textsOf(svg);
  result.bands = svg.split('class="band"').length - 1;
  const drawn = () => figure.locator(".series").evaluateAll((all) => all.map((each) => each.querySelectorAll(".line, .band").length));
  const [shown, legend] = [await drawn(), figure.locator(".legend button")];
  result.legend = await legend.allInnerTexts();
  await legend.first().click();
  result.hidden = [shown, await drawn()];
  await legend.first().click();
  await figure.getByRole("application").focus();
  await page.keyboard.press("End");
  await page.waitForFunction(() => document.querySelector('[aria-live="polite"]').textContent.includes(":"));
  result.read = await page.textContent('[aria-live="polite"]');
  const area = await figure.locator(".lines > svg").first().boundingBox();
  await page.mouse.move(area.x + area.width / 2, area.y + area.height / 2);
  result.tip = await figure.locator(".tip").innerText();
  // On a narrow screen the first column of a table that scrolls stays.
  await page.setViewportSize({ width: 390, height: 844 });
  result.first = await page.locator(".scroll").first().evaluate((table) => {
    const cells = () => [0, 1].map((n) => table.querySelector("tbody tr").cells[n].getBoundingClientRect().left);
    const before = cells();
    table.scrollTo(60, 0);
    return cells().map((left, n) => Math.round(left - before[n]));
  });
  await page.setViewportSize({ width: 1400, height: 1000 });
  result.overprinted = await overprinted(context, svg);
});
