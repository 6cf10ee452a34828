/** Sources of answers: views use this interface alone, so the same page serves a live studio and an exported file. */

import type { Answers } from "./types";
import { unpack } from "./wire";

export type Settings = Record<string, string | number | boolean>;

export interface Progress {
  id: number;
  state: "running" | "done" | "failed" | "stopped";
  fraction: number;
  message: string;
}

export interface Source {
  /** Return whether a query can be answered: an exported page has few answers. */
  holds(name: keyof Answers, settings: Settings): boolean;
  query<N extends keyof Answers>(name: N, settings: Settings, signal?: AbortSignal): Promise<Answers[N]>;
  /** Run a job to its end and return its answer; aborting the signal stops it. */
  run<N extends keyof Answers>(
    name: N,
    settings: Settings,
    onProgress: (progress: Progress) => void,
    signal: AbortSignal,
  ): Promise<Answers[N]>;
}

export class Problem extends Error {
  constructor(
    message: string,
    readonly kind: string,
  ) {
    super(message);
  }
}

export class LiveSource implements Source {
  holds(): boolean {
    return true;
  }

  async query<N extends keyof Answers>(name: N, settings: Settings, signal?: AbortSignal): Promise<Answers[N]> {
    const answer = await call("POST", `query/${name}`, settings, signal);
    return unpack<Answers[N]>(await answer.arrayBuffer());
  }

  async run<N extends keyof Answers>(
    name: N,
    settings: Settings,
    onProgress: (progress: Progress) => void,
    signal: AbortSignal,
  ): Promise<Answers[N]> {
    const { id } = (await (await call("POST", `jobs/${name}`, settings)).json()) as Progress;
    const stop = () => void call("DELETE", `jobs/${id}`).catch(() => undefined);
    signal.addEventListener("abort", stop, { once: true });
    addEventListener("pagehide", stop); // nobody would read its answer
    try {
      if (signal.aborted) {
        stop(); // aborted while the job was being started
        throw new DOMException("stopped", "AbortError");
      }
      const last = await this.#follow(id, onProgress, signal);
      if (last.state !== "done") throw new Problem(last.message || `This was ${last.state}.`, last.state);
      return unpack<Answers[N]>(await (await call("GET", `jobs/${id}`, undefined, signal)).arrayBuffer());
    } finally {
      signal.removeEventListener("abort", stop);
      removeEventListener("pagehide", stop);
    }
  }

  #follow(id: number, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<Progress> {
    return new Promise((resolve, reject) => {
      const events = new EventSource(`jobs/${id}/events`);
      const end = () => events.close();
      events.onmessage = (event: MessageEvent<string>) => {
        const progress = JSON.parse(event.data) as Progress;
        onProgress(progress);
        if (progress.state !== "running") {
          end();
          resolve(progress);
        }
      };
      events.onerror = () => {
        end();
        reject(new Problem(GONE, "connection"));
      };
      signal.addEventListener("abort", () => {
        end();
        reject(new DOMException("stopped", "AbortError"));
      });
    });
  }
}

const GONE = "The studio does not answer. If its program has ended, start it again: whatwhere studio.";

async function call(method: string, path: string, settings?: Settings, signal?: AbortSignal): Promise<Response> {
  let answer: Response;
  try {
    const body = settings === undefined ? null : JSON.stringify(settings);
    const headers = { "content-type": "application/json" };
    // A request that stops a job is sent even while the page is closed.
    answer = await fetch(path, { method, body, headers, signal: signal ?? null, keepalive: method === "DELETE" });
  } catch (problem) {
    if (problem instanceof DOMException && problem.name === "AbortError") throw problem;
    throw new Problem(GONE, "connection");
  }
  if (answer.ok) return answer;
  const body = await answer.text();
  let message = body;
  let kind = `status ${answer.status}`;
  try {
    ({ message, error: kind } = JSON.parse(body) as { message: string; error: string });
  } catch {
    // The server's guard answers in plain text.
  }
  throw new Problem(message, kind);
}
