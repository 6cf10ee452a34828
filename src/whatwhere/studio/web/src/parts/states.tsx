/** What a view shows while an answer is pending, or when it failed. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Query } from "../hooks";
import { type Followed, useJob } from "../jobs";
import type { Settings } from "../source";
import type { Queries } from "../types";

export function Wrong({ message }: { message: string }) {
  return (
    <div class="wrong" role="alert">
      {message.split("\n").map((line) => (
        <p key={line}>{line}</p>
      ))}
    </div>
  );
}

export function Waiting({ what }: { what: string }) {
  return (
    <p class="waiting" role="status">
      {what} …
    </p>
  );
}

interface Props<T> {
  query: Query<T>;
  what: string;
  children: (answer: T) => ComponentChildren;
}

/** Show a view of an answer; while the next one is pending, the last one, paler. */
export function Answered<T>({ query: { answer, problem, busy }, what, children }: Props<T>) {
  if (problem !== null) return <Wrong message={problem} />;
  if (answer === null) return busy ? <Waiting what={what} /> : null;
  return (
    <div class={busy ? "stale" : undefined} aria-busy={busy}>
      {children(answer)}
    </div>
  );
}

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

interface JobProps<N extends keyof Queries> {
  name: N;
  settings?: Settings;
  what: string;
  children(answer: Queries[N]): ComponentChildren;
}

export function JobAnswer<N extends keyof Queries>({ name, settings = {}, what, children }: JobProps<N>) {
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

let setAnnouncement: (text: string) => void = () => undefined;

export function announce(text: string): void {
  setAnnouncement(text);
}

export function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => {
    setAnnouncement = setText;
    return () => {
      setAnnouncement = () => undefined;
    };
  }, []);
  return (
    <div class="unseen" role="status" aria-live="polite">
      {text}
    </div>
  );
}
