/** The labels of each id: packed texts, types, scripts and norms, by which the map is named and colored. */

import { formatNumber, whole } from "../../numbers";
import { face, visibleToken } from "../../escape";
import type { PackedTexts, TokenLabels } from "../../types";

const DECODER = new TextDecoder();

function unpacked({ bytes, ends }: PackedTexts, n: number): string {
  const end = ends.values[n];
  if (end === undefined) return "";
  return DECODER.decode((bytes.values as Uint8Array).subarray(n ? ends.values[n - 1]! : 0, end));
}

export class Names {
  constructor(readonly labels: TokenLabels) {}

  word(id: number): string {
    return unpacked(this.labels.words, id) || `#${id}`;
  }

  text(id: number): string {
    return unpacked(this.labels.texts, id);
  }

  /** The text as it is searched. */
  plain(id: number): string {
    return this.text(id) || this.word(id);
  }

  shown(id: number): string {
    return visibleToken(face(this.word(id), this.text(id) || null));
  }

  kind(id: number): string {
    return this.labels.kind_names[this.labels.kinds.values[id]!] ?? "";
  }

  script(id: number): string {
    return this.labels.script_names[this.labels.scripts.values[id]!] ?? "";
  }

  norm(id: number): number {
    return this.labels.norms.values[id]!;
  }

  /** Return a token, its id, type, script and norm in one line. */
  line(id: number): string {
    return `${this.shown(id)} · #${id} · ${this.kind(id)} · ${this.script(id)} · norm ${formatNumber(this.norm(id))}`;
  }

  /** Find the id of a text, or of #id. */
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
