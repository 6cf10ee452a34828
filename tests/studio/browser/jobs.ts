/** A page that does nothing but run jobs, by the way that views do. */

import { LiveSource, type Progress } from "../../../src/whatwhere/studio/web/src/source";

async function run(name: string, settings: Record<string, number>, stopAt: number | null) {
  const reports: Progress[] = [];
  const leaving = new AbortController();
  const follow = (progress: Progress) => {
    reports.push(progress);
    if (stopAt !== null && progress.fraction >= stopAt) leaving.abort();
  };
  try {
    return { answer: await new LiveSource().run(name, settings, follow, leaving.signal), reports };
  } catch (problem) {
    return { problem: (problem as Error).name, message: (problem as Error).message, reports };
  }
}

Object.assign(globalThis, { run });
