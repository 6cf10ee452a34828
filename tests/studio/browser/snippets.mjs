// The Python below the figures of some views, as a reader would copy it.
import { browser, given, quiet, report, watched } from "./driving.mjs";

const started = await browser();
const { page, seen } = await watched(started, { viewport: { width: 1400, height: 1000 } });
await page.goto(given.url);
const snippets = {};
for (const [number, view] of given.views.entries()) {
  // A document of its own: within one, the last view's figures stay until the hash is noticed.
  await page.goto(`${new URL(given.url).origin}/?${number}#/${view}`);
  await page.waitForSelector("main .how, main .lead, main .note, main [role=alert]");
  await quiet(page);
  snippets[view] = await page.locator("main .how pre").allTextContents();
}
await started.close();
report({ snippets, complaints: seen.complaints });
