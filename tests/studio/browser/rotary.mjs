// The rotary lab in a real browser: it begins with the model's own settings; sliders and choices turn them.
import { figureOf, quiet, saved, used, violations } from "./driving.mjs";

await used("#/rotary", ".facts", async (page, result) => {
  const [a, b] = ["A", "B"].map((name) => page.getByRole("region", { name: `Configuration ${name}` }));
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
  const figure = figureOf(page, "Wavelength of each pair");
  result.csv = await saved(page, figure, "CSV");
  result.svg = await saved(page, figure, "SVG");
  result.how = await figure.locator(".how pre").textContent();

  // A slider by keyboard: the number, the facts and the address follow; the way back does not stop at each step.
  await a.getByRole("slider", { name: "factor", exact: true }).press("ArrowRight");
  await page.waitForFunction(() => location.hash.includes("factor"));
  await quiet(page);
  result.turned = { address: hash(), ...(await shown(a)) };

  // Another scaling keeps the factor.
  await a.getByRole("combobox", { name: "scaling" }).selectOption("yarn");
  await a.getByRole("slider", { name: "beta_fast" }).waitFor();
  result.yarn = await shown(a);
  result.note = await figureOf(page, "Agreement of the two rotaries").locator("figcaption p").innerText();

  // What is refused is said in the library's words, and the sliders stay.
  const exactly = a.getByRole("spinbutton", { name: "beta_slow, exactly" });
  await exactly.fill("40");
  await exactly.press("Enter");
  await a.getByRole("alert").waitFor();
  result.refused = await a.getByRole("alert").innerText();
  result.violations = await violations(page);
  await a.getByRole("button", { name: "Reset A" }).click();
  await a.locator(".facts").waitFor();
  result.reset = hash();
});
