/** The labels of each id: texts, types, scripts and norms, by which the map is named and colored. */

import { shownToken } from "../../escape";
import { formatNumber, whole } from "../../numbers";
import type { TokenLabels } from "../../types";

/** What is known of each id. */
export class Names {
  constructor(readonly labels: TokenLabels) {}

  readonly word = (id: number) => this.labels.words[id] || `#${id}`;
  readonly text = (id: number) => this.labels.texts[id] ?? "";
  /** The text as it is searched. */
  readonly plain = (id: number) => this.text(id) || this.word(id);
  readonly shown = (id: number) => shownToken(this.word(id), this.text(id) || null);
  readonly kind = (id: number) => this.labels.kind_names[this.labels.kinds.values[id]!] ?? "";
  readonly script = (id: number) => this.labels.script_names[this.labels.scripts.values[id]!] ?? "";
  readonly norm = (id: number) => this.labels.norms.values[id]!;

  /** Return a token, its id, type, script and norm in one line. */
  line(id: number): string {
    return `${this.shown(id)} · #${id} · ${this.kind(id)} · ${this.script(id)} · norm ${formatNumber(this.norm(id))}`;
  }

  find(token: string): number | null {
    const rows = this.labels.norms.values.length;
    const number = /^#\d+$/.test(token) ? Number(token.slice(1)) : null;
    if (number !== null) return number < rows ? number : null;
    for (let id = 0; id < rows; id++) if (this.word(id) === token) return id;
    return null;
  }
}

export function percent(share: number): string {
  const hundredths = 100 * share;
  return `${hundredths >= 10 || hundredths === 0 ? whole(Math.round(hundredths)) : formatNumber(hundredths, 2)} %`;
}

/** Return whether a text matches, without regard to case; in time linear in the text, whatever the pattern. */
export function matcher(pattern: string): (text: string) => boolean {
  const wanted = pattern.trim().toLowerCase();
  const begins = wanted.startsWith("^");
  const ends = wanted.length > 1 && wanted.endsWith("$");
  const parts = wanted.slice(begins ? 1 : 0, ends ? -1 : undefined).split("*");
  return (text) => {
    const low = text.trim().toLowerCase();
    const last = parts.length - 1;
    let at = 0;
    for (let n = 0; n <= last; n++) {
      const part = parts[n]!;
      let from = low.indexOf(part, at);
      if (n === 0 && begins) from = low.startsWith(part) ? 0 : -1;
      if (n === last && ends) {
        const tail = low.length - part.length;
        from = low.endsWith(part) && tail >= at && !(n === 0 && begins && tail > 0) ? tail : -1;
      }
      if (from < 0) return false;
      at = from + part.length;
    }
    return true;
  };
}
