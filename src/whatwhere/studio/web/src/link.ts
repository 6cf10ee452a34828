/** Deep links: the hash of the address names the view and holds every setting that is not its default. */

import type { Settings } from "./source";

export interface Link {
  view: string;
  given: URLSearchParams;
}

export function readLink(hash: string): Link {
  const [view = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view, given: new URLSearchParams(query) };
}

export function writeLink(view: string, settings: Settings, defaults: Settings): string {
  const changed = Object.entries(settings).filter(([name, value]) => value !== defaults[name]);
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
