/** What stands where an answer is not there yet, or will not come. */

import type { ComponentChildren } from "preact";
import type { Asked } from "../hooks";

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

/** Show what is made of an answer; while the next one is on its way, the one before, paler. */
export function Answered<T>({ asked, what, children }: { asked: Asked<T>; what: string; children: (answer: T) => ComponentChildren }) {
  if (asked.problem !== null) return <Wrong message={asked.problem} />;
  if (asked.answer === null) return asked.busy ? <Waiting what={what} /> : null;
  return (
    <div class={asked.busy ? "stale" : undefined} aria-busy={asked.busy}>
      {children(asked.answer)}
    </div>
  );
}
