/** The progress of a job, and the button that stops it. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { type Followed, useJob } from "../jobs";
import type { Settings } from "../source";
import type { Answers } from "../types";
import { Waiting, Wrong } from "./states";

export function JobProgress({ job, what }: { job: Followed<unknown>; what: string }) {
  return (
    <div class="progress">
      <progress max={1} value={job.progress?.fraction ?? 0} aria-label={what} />
      <span>
        {what}: {job.progress?.message || "starting"} …
      </span>
      <button type="button" onClick={job.stop}>
        Stop
      </button>
    </div>
  );
}

interface Props<N extends keyof Answers> {
  name: N;
  settings?: Settings;
  what: string;
  children(answer: Answers[N]): ComponentChildren;
}

/** Start a job where a view needs its answer, and show what is made of that. */
export function JobAnswer<N extends keyof Answers>({ name, settings = {}, what, children }: Props<N>) {
  const job = useJob(name, settings);
  useEffect(() => {
    if (job.state === "idle") job.start();
  });
  if (job.problem !== null) return <Wrong message={job.problem} />;
  if (job.answer) return <>{children(job.answer)}</>;
  if (job.state === "stopped") {
    return (
      <button type="button" onClick={job.start}>
        Begin {what}
      </button>
    );
  }
  return job.progress ? <JobProgress job={job} what={what} /> : <Waiting what={what} />;
}
