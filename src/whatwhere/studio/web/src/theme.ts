/** Light or dark: the user's choice, else the system's preference. */

export type Theme = "light" | "dark";

const KEPT = "whatwhere-theme";
const dark = () => matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<(theme: Theme) => void>();

export function currentTheme(): Theme {
  return kept() ?? (dark().matches ? "dark" : "light");
}

export function chooseTheme(theme: Theme): void {
  try {
    localStorage.setItem(KEPT, theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  show(theme);
}

export function onTheme(listener: (theme: Theme) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function startTheme(): void {
  show(currentTheme());
  dark().addEventListener("change", () => show(currentTheme()));
}

/** Draw something as the light page would: files have a white background. */
export function inLight<T>(draw: () => T): T {
  const { dataset } = document.documentElement;
  const before = dataset["theme"];
  dataset["theme"] = "light";
  try {
    return draw();
  } finally {
    if (before === undefined) delete dataset["theme"];
    else dataset["theme"] = before;
  }
}

function show(theme: Theme): void {
  document.documentElement.dataset["theme"] = theme;
  for (const listener of listeners) listener(theme);
}

function kept(): Theme | null {
  try {
    const theme = localStorage.getItem(KEPT);
    return theme === "light" || theme === "dark" ? theme : null;
  } catch {
    return null;
  }
}
