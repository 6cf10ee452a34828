/** Sources of answers: views use this interface alone, so the same page serves a live studio and an exported file. */

import type { Queries } from "./types";
import { unpack } from "./wire";

export type Settings = Record<string, string | number | boolean>;

export interface Progress {
  state: "running" | "done" | "failed" | "stopped";
  fraction: number;
  message: string;
}

export interface Source {
  /** Return whether a query can be answered: an exported page has few answers. */
  holds(name: keyof Queries, settings: Settings): boolean;
  query<N extends keyof Queries>(name: N, settings: Settings, signal?: AbortSignal): Promise<Queries[N]>;
  /** Run a job to its end and return its answer; aborting the signal stops it. */
  run<N extends keyof Queries>(
    name: N,
    settings: Settings,
    onProgress: (progress: Progress) => void,
    signal: AbortSignal,
  ): Promise<Queries[N]>;
}

/** What is said to the reader in the words of its message. */
export class Problem extends Error {}

export class LiveSource implements Source {
  holds(): boolean {
    return true;
  }

  async query<N extends keyof Queries>(name: N, settings: Settings, signal?: AbortSignal): Promise<Queries[N]> {
    const answer = await call(`query/${name}`, settings, signal);
    return unpack<Queries[N]>(await answer.arrayBuffer());
  }

  async run<N extends keyof Queries>(
    name: N,
    settings: Settings,
    onProgress: (progress: Progress) => void,
    signal: AbortSignal,
  ): Promise<Queries[N]> {
    const reader = (await call(`jobs/${name}`, settings, signal)).body!.getReader();
    let bytes = new Uint8Array();
    let last: Progress | null = null;
    for (;;) {
      const { done, value } = await reader.read().catch(gone);
      if (done) break;
      bytes = new Uint8Array(await new Blob([bytes, value]).arrayBuffer());
      // Lines of progress, then the answer.
      for (let end = 0; last?.state !== "done" && (end = bytes.indexOf(10)) >= 0; bytes = bytes.slice(end + 1)) {
        last = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))) as Progress;
        onProgress(last);
      }
    }
    if (last?.state !== "done") throw last ? new Problem(last.message) : gone(last);
    return unpack<Queries[N]>(bytes.buffer);
  }
}

const GONE = "The studio does not answer. If its program has ended, start it again: whatwhere studio.";

async function call(path: string, settings: Settings, signal?: AbortSignal): Promise<Response> {
  const headers = { "content-type": "application/json" };
  const request = { method: "POST", body: JSON.stringify(settings), headers, signal: signal ?? null };
  const answer = await fetch(path, request).catch(gone);
  if (answer.ok) return answer;
  const body = await answer.text();
  // The server's guard answers in plain text.
  const json = answer.headers.get("content-type") === "application/json";
  throw new Problem(json ? (JSON.parse(body) as { message: string }).message : body);
}

function gone(problem: unknown): never {
  if (problem instanceof DOMException && problem.name === "AbortError") throw problem;
  throw new Problem(GONE);
}
