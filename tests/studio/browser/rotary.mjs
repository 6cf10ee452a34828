// The rotary lab in a real browser: it begins with the model's own settings; sliders and choices turn them.
import { browser, given, saved, small, report, violations, watched } from "./driving.mjs";

const result = {};
const started = await browser();
const { page, context, seen } = await watched(started, { viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
await page.goto(`${given.url}#/rotary`);
const [a, b] = ["A", "B"].map((name) => page.getByRole("region", { name: `Configuration ${name}` }));
await a.locator(".facts").waitFor();
const hash = () => new URL(page.url()).hash;
const shown = async (side) => ({
  scaling: await side.getByRole("combobox", { name: "scaling" }).inputValue(),
  parameters: Object.fromEntries(
    await side.locator('input[type="number"]').evaluateAll((all) => all.map((each) => [each.getAttribute("aria-label"), Number(each.value)])),
  ),
  facts: await side.locator(".facts li").allInnerTexts(),
});
result.a = await shown(a);
result.b = await shown(b);
result.address = hash();
const figure = page.locator("figure", { hasText: "Wavelength of each pair" });
result.csv = await saved(page, figure, "CSV");
result.svg = await saved(page, figure, "SVG");
await figure.getByText("How was this computed?").press("Enter");
result.how = await figure.locator(".how pre").innerText();

// A slider by keyboard: the number, the facts and the address follow; the way back does not stop at each step.
const factor = a.getByRole("slider", { name: "factor", exact: true });
await factor.press("ArrowRight");
await page.waitForFunction(() => location.hash.includes("factor"));
await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
result.turned = { address: hash(), ...(await shown(a)), words: await factor.getAttribute("aria-valuetext") };

// Another scaling keeps the factor.
await a.getByRole("combobox", { name: "scaling" }).selectOption("yarn");
await a.getByRole("slider", { name: "beta_fast" }).waitFor();
result.yarn = await shown(a);
result.note = await page.locator("figure", { hasText: "Agreement of the two rotaries" }).locator("figcaption p").innerText();

// What is refused is said in the library's words, and the sliders stay.
const exactly = a.getByRole("spinbutton", { name: "beta_slow, exactly" });
await exactly.fill("40");
await exactly.press("Enter");
await a.getByRole("alert").waitFor();
result.refused = await a.getByRole("alert").innerText();
result.wrong = await violations(page);
await a.getByRole("button", { name: "Reset A" }).click();
await a.locator(".facts").waitFor();
result.reset = hash();
result.complaints = seen.complaints;
result.requests = seen.requests;
await context.close();
result.small = await small(started, `${given.url}#/rotary?b=scaling%3Dlinear`, ".facts");
await started.close();
report(result);
