// Open views of the studio and take a picture of each; driven by studio_pictures.py.
import { createRequire } from "node:module";
import { join } from "node:path";

const given = JSON.parse(process.argv[2]);
const { chromium } = createRequire(join(given.web, "package.json"))("playwright-core");
const flags = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync disable-3d-apis";
const browser = await chromium.launch({ executablePath: given.chromium, args: flags.split(" ").map((flag) => `--${flag}`) });
const context = await browser.newContext({ colorScheme: "light", reducedMotion: "reduce" });
const page = await context.newPage();
page.setDefaultTimeout(300_000);
page.on("pageerror", (problem) => console.error(String(problem)));
let url = given.url; // with the key, once: afterwards the browser has a cookie
for (const { file, address, height, until, to } of given.pictures) {
  await page.setViewportSize({ width: given.width, height });
  await page.goto(url + address);
  url = `${new URL(given.url).origin}/`;
  await page.reload(); // an address that differs in its hash alone opens no new page
  await page.waitForSelector("main figure");
  await page.waitForSelector(until);
  await page.waitForFunction(() => !document.querySelector(".waiting, [aria-busy=true], [role=progressbar], progress"));
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  if (await page.locator('main [role="alert"]').count()) throw new Error(`${file}: ${await page.locator('main [role="alert"]').first().innerText()}`);
  await page.screenshot({ path: to });
}
await browser.close();
