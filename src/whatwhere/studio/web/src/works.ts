/** Jobs that outlive the view which started them: who comes back finds them as far as they have come. */

import { useEffect, useState } from "preact/hooks";
import { said, useSource } from "./hooks";
import type { Progress, Settings, Source } from "./source";
import type { Answers } from "./types";

export interface Working<T> {
  state: "idle" | "running" | "done" | "failed" | "stopped";
  progress: Progress | null;
  answer: T | null;
  problem: string | null;
}

export type Followed<T> = Working<T> & { start(): void; stop(): void };

const IDLE: Working<never> = { state: "idle", progress: null, answer: null, problem: null };

class Work {
  now: Working<unknown> = IDLE;
  readonly listeners = new Set<() => void>();
  #leaving = new AbortController();

  start(source: Source, name: string, settings: Settings): void {
    if (this.now.state === "running") return;
    this.#leaving = new AbortController();
    this.#set({ ...IDLE, state: "running" });
    source.work(name, settings, (progress) => this.#set({ ...this.now, progress }), this.#leaving.signal).then(
      (answer) => this.#set({ ...this.now, state: "done", answer }),
      (problem: unknown) => {
        const stopped = problem instanceof DOMException && problem.name === "AbortError";
        this.#set({ ...IDLE, state: stopped ? "stopped" : "failed", problem: stopped ? null : said(problem) });
      },
    );
  }

  stop(): void {
    this.#leaving.abort();
  }

  #set(now: Working<unknown>): void {
    this.now = now;
    for (const listener of this.listeners) listener();
  }
}

const works = new Map<string, Work>();

/** Follow the job of a name and settings, whoever started it; null follows none. */
export function useWork<N extends keyof Answers>(name: N, settings: Settings | null): Followed<Answers[N]>;
export function useWork<T>(name: string, settings: Settings | null): Followed<T>;
export function useWork(name: string, settings: Settings | null): Followed<unknown> {
  const source = useSource();
  const key = settings && JSON.stringify([name, settings]);
  const [, redraw] = useState({});
  if (key !== null && !works.has(key)) works.set(key, new Work());
  const work = key === null ? null : works.get(key)!;
  useEffect(() => {
    if (!work) return;
    const follow = () => redraw({});
    work.listeners.add(follow);
    return () => void work.listeners.delete(follow);
  }, [work]);
  return {
    ...(work?.now ?? IDLE),
    start: () => work?.start(source, name, settings!),
    stop: () => work?.stop(),
  };
}
