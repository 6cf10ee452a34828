/** Deep links: the hash of the address names the view and holds every setting that is not its default. */

import type { Settings } from "./source";

interface Link {
  view: string;
  given: URLSearchParams;
}

/** Settings that every link carries on: of a comparison the run that is looked at. */
const carried: { now: Settings; usual: Settings } = { now: {}, usual: {} };

export function carry(now: Settings, usual: Settings): void {
  Object.assign(carried, { now, usual });
}

export function readLink(hash: string): Link {
  const [view = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view, given: new URLSearchParams(query) };
}

export function writeLink(view: string, settings: Settings, defaults: Settings): string {
  const usual = { ...carried.usual, ...defaults };
  const changed = Object.entries({ ...carried.now, ...settings }).filter(([name, value]) => value !== usual[name]);
  const query = new URLSearchParams(changed.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

/** Return settings of the defaults' types; a value that cannot be converted keeps its default. */
export function fitted(given: URLSearchParams, defaults: Settings): Settings {
  const settings: Settings = { ...defaults };
  for (const [name, usual] of Object.entries(defaults)) {
    const text = given.get(name);
    if (text === null) continue;
    if (typeof usual === "boolean") settings[name] = text === "true";
    else if (typeof usual === "string") settings[name] = text;
    else if (text.trim() !== "" && Number.isFinite(Number(text))) settings[name] = Number(text);
  }
  return settings;
}

let kept: string | null = null;
const listeners = new Set<(hash: string) => void>();

export function hashNow(): string {
  return kept ?? location.hash;
}

export function go(hash: string, replace = false): void {
  try {
    if (kept !== null) kept = hash;
    else if (replace) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
  } catch {
    kept = hash;
  }
  notify();
}

export function followHash(listener: (hash: string) => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function startAddress(): void {
  addEventListener("hashchange", notify);
  if (location.protocol !== "about:") return;
  // In an iframe of srcdoc, links to a hash are resolved by the address of the page around it, and would lead there.
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
    if (!link || event.defaultPrevented) return;
    event.preventDefault();
    go(link.getAttribute("href")!);
  });
}

function notify(): void {
  for (const listener of listeners) listener(hashNow());
}
