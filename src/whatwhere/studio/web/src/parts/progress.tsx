/** How far a job has come, and the button that ends it. */

import type { Working } from "../works";

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
