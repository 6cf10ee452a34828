/** How far a job has come, and the button that ends it. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { useWork, type Working } from "../works";
import { Waiting, Wrong } from "./states";

export function Progressing({ work, what, stop }: { work: Working<unknown>; what: string; stop(): void }) {
  if (work.state !== "running") return null;
  const said = work.progress?.said || "starting";
  return (
    <div class="progress">
      <progress max={1} value={work.progress?.share ?? 0} aria-label={what} />
      <span>
        {what}: {said} …
      </span>
      <button type="button" onClick={stop}>
        Stop
      </button>
    </div>
  );
}

/** Start a job without settings where a view needs its answer, and show what is made of that. */
export function Worked<T>({ name, what, children }: { name: string; what: string; children(answer: T): ComponentChildren }) {
  const work = useWork<T>(name, {});
  useEffect(() => {
    if (work.state === "idle") work.start();
  }, []);
  if (work.problem !== null) return <Wrong message={work.problem} />;
  if (work.answer) return <>{children(work.answer)}</>;
  if (work.state === "stopped") {
    return (
      <button type="button" onClick={work.start}>
        Begin {what}
      </button>
    );
  }
  return work.progress ? <Progressing work={work} what={what} stop={work.stop} /> : <Waiting what={what} />;
}
