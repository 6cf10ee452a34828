/** The progress of a job, and the button that stops it. */

import type { ComponentChildren } from "preact";
import { useContext, useEffect } from "preact/hooks";
import { OpenContext } from "../hooks";
import { useJob, type JobState } from "../jobs";
import type { Answers } from "../types";
import { Waiting, Wrong } from "./states";

export function JobProgress({ job, what, stop }: { job: JobState<unknown>; what: string; stop(): void }) {
  if (job.state !== "running") return null;
  const message = job.progress?.message || "starting";
  return (
    <div class="progress">
      <progress max={1} value={job.progress?.fraction ?? 0} aria-label={what} />
      <span>
        {what}: {message} …
      </span>
      <button type="button" onClick={stop}>
        Stop
      </button>
    </div>
  );
}

/** Start a job without settings where a view needs its answer, and show what is made of that. */
export function JobAnswer<N extends keyof Answers>({
  name,
  what,
  children,
}: {
  name: N;
  what: string;
  children(answer: Answers[N]): ComponentChildren;
}) {
  const { run } = useContext(OpenContext);
  const job = useJob(name, {});
  useEffect(() => {
    if (job.state === "idle") job.start();
  }, [run]);
  if (job.problem !== null) return <Wrong message={job.problem} />;
  if (job.answer) return <>{children(job.answer)}</>;
  if (job.state === "stopped") {
    return (
      <button type="button" onClick={job.start}>
        Begin {what}
      </button>
    );
  }
  return job.progress ? <JobProgress job={job} what={what} stop={job.stop} /> : <Waiting what={what} />;
}
