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

/** Show a view of an answer; while the next one is pending, the last one, paler. */
export function Answered<T>({
  query,
  what,
  children,
}: {
  query: Query<T>;
  what: string;
  children: (answer: T) => ComponentChildren;
}) {
  if (query.problem !== null) return <Wrong message={query.problem} />;
  if (query.answer === null) return query.busy ? <Waiting what={what} /> : null;
  return (
    <div class={query.busy ? "stale" : undefined} aria-busy={query.busy}>
      {children(query.answer)}
    </div>
  );
}
