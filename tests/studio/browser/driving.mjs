// What the scripts here share: packages of the page's folder, a browser that asks the network for nothing, a result.
import { createRequire } from "node:module";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const given = JSON.parse(process.argv[2]);
export const need = createRequire(join(given.web, "package.json"));

const QUIET = [
  ..."no-sandbox disable-gpu disable-quic no-first-run disable-background-networking".split(" "),
  ..."disable-component-update disable-sync disable-extensions".split(" "),
].map((flag) => `--${flag}`);

// Firefox is told by its settings what Chromium is told for each page: light, and little motion.
const CALM = { "ui.prefersReducedMotion": 1, "layout.css.prefers-color-scheme.content-override": 1 };

/** Let a Firefox that knows no such command be asked for a color scheme. */
function likeOthers(started) {
  const session = Object.getPrototypeOf(started._connection.toImpl(started)._browserSession);
  const { send } = session;
  session.send = async function (method, parameters) {
    return method === "emulation.setMediaFeaturesOverride" ? {} : send.call(this, method, parameters);
  };
  return started;
}

/** Start a browser; 3D is on or off as a whole, WebGL in software included. */
export async function browser(flat = true) {
  const { chromium, firefox } = need("playwright-core");
  if (given.firefox) {
    const where = { executablePath: given.firefox, downloadsPath: given.saved };
    return likeOthers(await firefox.launch({ channel: "moz-firefox", ...where, firefoxUserPrefs: CALM }));
  }
  const args = flat ? [...QUIET, "--disable-3d-apis"] : QUIET;
  return chromium.launch({ executablePath: given.chromium, args });
}

/** Bundle TypeScript of the page, or of a test, into one file, and return its path. */
export async function bundle(entry, format) {
  const folder = mkdtempSync(join(tmpdir(), "whatwhere-page-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  const outfile = join(folder, format === "esm" ? "bundle.mjs" : "bundle.js");
  const options = { entryPoints: [entry], outfile, bundle: true, format, globalName: "studio", target: "es2022", logLevel: "error" };
  await need("esbuild").build({ ...options, jsx: "automatic", jsxImportSource: "preact", nodePaths: [join(given.web, "node_modules")] });
  return outfile;
}

/** Open a page that keeps a list of all its requests and error messages. */
export async function watched(started, options) {
  const context = await started.newContext({ reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const seen = { requests: [], complaints: [] };
  page.on("request", (request) => seen.requests.push(request.url()));
  page.on("console", (message) => message.type() !== "log" && seen.complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (problem) => seen.complaints.push(String(problem)));
  return { page, context, seen };
}

/**
 * Return the violations that axe-core calls serious or critical, once no answer is old: it is drawn pale until then.
 * `rules` are those that may have changed since a page was looked at; without, all.
 */
export async function violations(page, rules) {
  await page.waitForFunction(() => !document.querySelector(".stale"));
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(need("axe-core").source);
  const { violations } = await page.evaluate((runOnly) => globalThis.axe.run({ preload: false, ...(runOnly && { runOnly }) }), rules);
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).slice(0, 4).join(", ")}`);
}

/** Print the results, which pytest checks. */
export function report(result) {
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

/**
 * Open a view, use it, and report what that tells. `wrong` is a list of what may be wrong with any view: what axe finds,
 * light at first and dark at last and on the screen of a telephone, what does not fit there, complaints, other hosts.
 */
export async function used(hash, ready, use) {
  const started = await browser();
  const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
  await page.goto(given.url + hash);
  await page.waitForSelector(ready);
  const wrong = [...(await violations(page)), ...(await below(page))];
  const result = {};
  await use(page, result, context);
  await page.getByRole("button", { name: "Show the page dark" }).click();
  wrong.push(...(await violations(page)));
  await context.close();
  wrong.push(...(await small(started, given.url + hash, ready)), ...complaints(seen));
  await started.close();
  report({ ...result, wrong });
}

/** Return the errors of a page, and what it asked of other hosts than this; some answers are refusals, if they may be. */
export function complaints({ complaints, requests }) {
  const others = requests.filter((url) => !/^(data|blob|file|about):/.test(url) && new URL(url).hostname !== "127.0.0.1");
  return [...complaints.filter((each) => !given.refused || !each.includes("400 (Bad Request)")), ...others];
}

/** Open a view as small as a telephone, dark, and return what is wrong with it there. */
export async function small(started, url, ready) {
  const { page, context, seen } = await watched(started, { viewport: { width: 390, height: 844 }, colorScheme: "dark" });
  await page.goto(url);
  await page.waitForSelector(ready);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  const broken = await page.evaluate(() => {
    const lines = (cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      const tops = [...range.getClientRects()].map(({ top }) => top).sort((a, b) => a - b);
      return tops.filter((top, n) => n === 0 || top - tops[n - 1] > 9).length;
    };
    const cells = [...document.querySelectorAll("main td.number")].filter((cell) => lines(cell) > 1 + cell.querySelectorAll(".range").length);
    return cells.map((cell) => `broken into lines: ${cell.innerText}`);
  });
  const wrong = [...(await violations(page)), ...complaints(seen), ...(await below(page)), ...broken, ...(overflow > 0 ? [`${overflow} pixels too wide`] : [])];
  await context.close();
  return wrong;
}

/** Return what is wrong if the first figure of a view is not drawn in the first screen, at least its upper part. */
async function below(page) {
  await quiet(page);
  return page.evaluate(() => {
    const drawn = document.querySelector("main figure :is(.chart, .bars)");
    const top = drawn ? Math.round(drawn.getBoundingClientRect().top + scrollY) : 0;
    return top > innerHeight - 60 ? [`the first figure is drawn ${top} pixels down, in a window of ${innerHeight}`] : [];
  });
}

/** Wait until no answer is old or still to come. */
export function quiet(page) {
  return page.waitForFunction(() => !document.querySelector(".stale, .waiting, [aria-busy=true]"), null, { timeout: 120_000 });
}

/** Return the figure of a title. */
export function figureOf(page, title) {
  return page.locator("figure", { has: page.getByRole("heading", { name: title }) });
}

/** Open the menu of a figure or a table, press one of its kinds of files, and return the path of what it saves. */
export async function download(page, figure, kind) {
  const menu = figure.locator(".save");
  if ((await menu.getAttribute("open")) === null) await menu.getByText("Save").click();
  const [saved] = await Promise.all([page.waitForEvent("download"), menu.getByRole("button", { name: `as ${kind}` }).click()]);
  return saved;
}

/** Return what a figure or a table saves, as text. */
export async function saved(page, figure, kind) {
  const { readFileSync } = await import("node:fs");
  return String(readFileSync(await (await download(page, figure, kind)).path()));
}

/** Open each view of an exported page, and count its errors: it contains the answers that each view starts with. */
export async function opened(page, ready = "main :is(figure, table)") {
  const refused = {};
  for (const link of await page.locator("nav a").all()) {
    await link.click();
    await page.waitForFunction((title) => document.querySelector("h1").textContent === title, await link.innerText());
    await page.waitForSelector(`${ready}, main [role="alert"]`);
    await quiet(page);
    refused[await link.innerText()] = await page.locator('main [role="alert"]').count();
  }
  return refused;
}
