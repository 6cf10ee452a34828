/** The answers of an exported page: they are in the file itself, gzipped, by query. Written by studio/export.py. */

import { Names } from "./views/map/labels";
import { Problem, type Settings, type Source } from "./source";
import type { Queries, MapNeighbors, FirstTokens } from "./types";
import { unpack } from "./wire";

interface Exported {
  /** Base64 of gzip of what studio/export.py packs. */
  blocks: string[];
  /** By query, which block answers it. */
  answers: Record<string, number>;
}

/** Return the answers that this page was exported with, or null where it is served live. */
export function exportedHere(): Exported | null {
  const text = document.getElementById("exported")?.textContent;
  return text ? (JSON.parse(text) as Exported) : null;
}

export class ExportedSource implements Source {
  readonly #exported: Exported;
  readonly #kept = new Map<number, Promise<ArrayBuffer>>();

  constructor(exported: Exported) {
    this.#exported = exported;
  }

  holds(name: keyof Queries, settings: Settings): boolean {
    return queryKey(name, settings) in this.#exported.answers;
  }

  async query<N extends keyof Queries>(name: N, settings: Settings): Promise<Queries[N]> {
    if (name === "tokens.find") return (await this.#find(settings)) as Queries[N];
    if (name === "maps.near") return (await this.#near(settings)) as Queries[N];
    const block = this.#exported.answers[queryKey(name, settings)];
    if (block === undefined) {
      throw new Problem(
        "This is an exported page: it holds some answers, and not this one.\n" +
          "Open the studio on the file itself: whatwhere studio PATH",
      );
    }
    if (!this.#kept.has(block)) this.#kept.set(block, unzipped(this.#exported.blocks[block]!));
    return unpack<Queries[N]>(await this.#kept.get(block)!);
  }

  run<N extends keyof Queries>(name: N, settings: Settings): Promise<Queries[N]> {
    return this.query(name, settings);
  }

  /** Return the true neighbors of a token: those of all are here. */
  async #near({ token, ...settings }: Settings): Promise<MapNeighbors> {
    const names = new Names(await this.query("maps.labels", settings));
    const { of, ids, thousandths } = await this.query("maps.neighbors", settings);
    const id = names.find(String(token));
    const row = id === null ? -1 : of.values.indexOf(id);
    if (row < 0) throw new Problem(`No token here is ${token}.`);
    const [, k = 0] = ids.shape;
    const [from, to] = [k * row, k * row + k];
    const cosines = Float32Array.from(thousandths.values.slice(from, to), (each) => each / 1000);
    return {
      id: id!,
      ids: { values: ids.values.slice(from, to), shape: [k] },
      cosines: { values: cosines, shape: [k] },
    };
  }

  /** Search tokens as the server does: equal ones first, then prefixes, then any that contain the text. */
  async #find({ text, most, run }: Settings): Promise<FirstTokens> {
    const names = new Names(await this.query("maps.labels", { table: "input", ...(run !== undefined && { run }) }));
    const wanted = String(text).trim().toLowerCase();
    const rows = names.labels.norms.values.length;
    const matches: { id: number; rank: number; length: number }[] = [];
    const number = names.find(String(text).trim());
    if (number !== null) matches.push({ id: number, rank: 0, length: 0 });
    for (let id = 0; id < rows && !wanted.startsWith("#"); id++) {
      const bare = (names.text(id) || names.word(id)).trim().toLowerCase();
      if (id !== number && bare.includes(wanted))
        matches.push({ id, rank: bare === wanted ? 1 : bare.startsWith(wanted) ? 2 : 3, length: bare.length });
    }
    matches.sort((a, b) => a.rank - b.rank || a.length - b.length || a.id - b.id);
    const ids = matches.slice(0, Number(most)).map(({ id }) => id);
    return {
      count: matches.length,
      ids: { values: Int32Array.from(ids), shape: [ids.length] },
      words: ids.map((id) => names.word(id)),
      texts: ids.map((id) => names.text(id) || names.word(id)),
      kinds: ids.map((id) => names.kind(id)),
    };
  }
}

/** Name a query as studio/export.py does. */
function queryKey(name: string, settings: Settings): string {
  const sorted = Object.entries(settings).sort(([one], [other]) => (one < other ? -1 : 1));
  return `${name}?${JSON.stringify(Object.fromEntries(sorted))}`;
}

async function unzipped(block: string): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(block), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
