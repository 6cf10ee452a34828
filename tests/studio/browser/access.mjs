// Each view of a studio as people with other needs use it: axe, the keyboard alone, little motion, a zoom of 200 %, forced colors.
import { browser, given, need, report, watched } from "./driving.mjs";

const CONTROLS = 'a[href], button, select, input, textarea, summary, [tabindex="0"]';
const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 1280, height: 1000 }, colorScheme: "light" });
const result = { views: {}, reached: 0 };

/** Wait until a view shows what it has. */
async function settled() {
  await page.waitForFunction(() => document.querySelector('main :is(figure, table, .answer, p, [role="alert"])'));
  await page.waitForFunction(() => !document.querySelector(".waiting, [aria-busy=true], [role=progressbar], progress"), undefined, { timeout: 90_000 });
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  // What is computed later than the rest comes without a word.
  for (let before = -1, now = 0; before !== now; ) {
    before = now;
    await page.waitForTimeout(500);
    now = await page.locator(CONTROLS).count();
  }
}

/** Return the controls that Tab does not reach, or reaches without a mark or outside of the window, and whether it goes round. */
async function byKeyboard() {
  await page.evaluate((controls) => {
    document.activeElement.blur();
    getSelection().removeAllRanges();
    scrollTo(0, 0);
    const shown = [...document.querySelectorAll(controls)].filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled && each.tabIndex >= 0);
    // Of a group of radio buttons, Tab reaches the chosen one; a table of many rows has a button that leads past them.
    globalThis.left = new Set(shown.filter((each) => (each.type !== "radio" || each.checked) && !each.closest(".past .scroll")));
    globalThis.steps = left.size;
  }, CONTROLS);
  const unmarked = [];
  const steps = await page.evaluate(() => globalThis.steps);
  let rounds = 0; // it begins where the view was opened, and so goes round twice
  for (let step = 0; step <= 2 * steps + 60 && rounds < 2; step++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const one = document.activeElement;
      if (one === document.body) return null;
      globalThis.left.delete(one);
      const style = getComputedStyle(one);
      const box = one.getBoundingClientRect();
      const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
      return { marked: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1, inside, html: one.outerHTML.slice(0, 120) };
    });
    if (at?.html.includes("Past the")) await page.keyboard.press("Enter");
    if (at === null) rounds++;
    else if (!at.marked || !at.inside) unmarked.push(at.html);
  }
  const left = await page.evaluate(() => [...globalThis.left].map((each) => each.outerHTML.slice(0, 120)));
  return { left, unmarked, round: rounds === 2, reached: steps - left.length };
}

await page.goto(given.url);
await settled();
for (const link of (await page.locator("nav a").all()).slice(0, given.views)) {
  const name = await link.innerText();
  await link.click();
  await page.waitForFunction((title) => document.querySelector("h1")?.textContent === title, name);
  await settled();
  const found = (result.views[name] = {});
  await page.evaluate(need("axe-core").source);
  const { violations } = await page.evaluate(() => globalThis.axe.run({ preload: false }));
  found.axe = violations.map(({ id, impact, nodes }) => `${id} (${impact}): ${nodes.map((node) => node.target.join(" ")).slice(0, 4).join(", ")}`);
  found.moving = await page.evaluate(() => document.getAnimations().length);
  const keyboard = await byKeyboard();
  result.reached += keyboard.reached;
  Object.assign(found, { left: keyboard.left, unmarked: keyboard.unmarked, round: keyboard.round });

  await page.emulateMedia({ forcedColors: "active" });
  // A control that is told from the page by its ground alone is lost where all grounds are one.
  found.lost = await page.evaluate((controls) => {
    const lines = (style) => ["Top", "Right", "Bottom", "Left"].some((side) => style[`border${side}Style`] !== "none" && parseFloat(style[`border${side}Width`]) > 0);
    return [...document.querySelectorAll(controls)]
      .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.innerText?.trim() && !each.querySelector("svg, canvas, img"))
      .filter((each) => !lines(getComputedStyle(each)) && getComputedStyle(each).appearance === "none")
      .map((each) => each.outerHTML.slice(0, 120));
  }, CONTROLS);
  found.pale = await page.evaluate(() => {
    const ground = getComputedStyle(document.body).backgroundColor;
    return [...document.querySelectorAll('main i[style*="background"]')].filter((each) => getComputedStyle(each).backgroundColor === ground).length;
  });
  if (given.pictures) await page.screenshot({ path: `${given.pictures}/${name}-forced.png` });
  await page.emulateMedia({ forcedColors: "none" });

  await page.setViewportSize({ width: 640, height: 500 });
  await settled();
  found.overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (given.pictures) await page.screenshot({ path: `${given.pictures}/${name}-640.png` });
  await page.setViewportSize({ width: 1280, height: 1000 });
  await settled();
}
result.complaints = seen.complaints;
await started.close();
report(result);
