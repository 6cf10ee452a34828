/** What a view shows while an answer is pending, or when it failed. */

import type { ComponentChildren } from "preact";
import type { Query } from "../hooks";

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
