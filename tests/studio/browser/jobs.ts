/** A page that does nothing but run jobs, by the way that views do. */

import { LiveSource, type Progress } from "../../../src/whatwhere/studio/web/src/source";

async function run(name: string, settings: Record<string, number>, stopAt: number | null) {
  const told: Progress[] = [];
  const leaving = new AbortController();
  const follow = (progress: Progress) => {
    told.push(progress);
    if (stopAt !== null && progress.share >= stopAt) leaving.abort();
  };
  try {
    return { answer: await new LiveSource().work(name, settings, follow, leaving.signal), told };
  } catch (problem) {
    return { problem: (problem as Error).name, message: (problem as Error).message, told };
  }
}

Object.assign(globalThis, { run });
