/** Jobs that outlive the view which started them: a reader who returns to the view sees their progress. */

import { useEffect, useState } from "preact/hooks";
import { messageOf, useSource, useWithRun } from "./hooks";
import type { Progress, Settings, Source } from "./source";
import type { Queries } from "./types";

interface JobState<T> {
  state: "idle" | "running" | "done" | "failed" | "stopped";
  progress: Progress | null;
  answer: T | null;
  problem: string | null;
}

export type Followed<T> = JobState<T> & { start(): void; stop(): void };

const IDLE: JobState<never> = { state: "idle", progress: null, answer: null, problem: null };

class Job {
  now: JobState<unknown> = IDLE;
  readonly listeners = new Set<() => void>();
  #leaving = new AbortController();

  start(source: Source, name: keyof Queries, settings: Settings): void {
    if (this.now.state === "running") return;
    this.#leaving = new AbortController();
    this.#set({ ...IDLE, state: "running" });
    source
      .run(name, settings, (progress) => this.#set({ ...this.now, progress }), this.#leaving.signal)
      .then(
        (answer) => this.#set({ ...this.now, state: "done", answer }),
        (problem: unknown) => {
          const stopped = problem instanceof DOMException && problem.name === "AbortError";
          this.#set({ ...IDLE, state: stopped ? "stopped" : "failed", problem: stopped ? null : messageOf(problem) });
        },
      );
  }

  stop(): void {
    this.#leaving.abort();
  }

  #set(now: JobState<unknown>): void {
    this.now = now;
    for (const listener of this.listeners) listener();
  }
}

const jobs = new Map<string, Job>();

/** Follow the job of a name and settings, whoever started it; null follows none. */
export function useJob<N extends keyof Queries>(name: N, given: Settings | null): Followed<Queries[N]> {
  const source = useSource();
  const settings = useWithRun()(name, given);
  const key = settings && JSON.stringify([name, settings]);
  const [, redraw] = useState({});
  if (key !== null && !jobs.has(key)) jobs.set(key, new Job());
  const job = key === null ? null : jobs.get(key)!;
  useEffect(() => {
    if (!job) return;
    const follow = () => redraw({});
    job.listeners.add(follow);
    return () => void job.listeners.delete(follow);
  }, [job]);
  return {
    ...((job?.now ?? IDLE) as JobState<Queries[N]>), // the key holds the name
    start: () => job?.start(source, name, settings!),
    stop: () => job?.stop(),
  };
}
