/** How a figure was computed: the formula, what went in, and the line that gives the same numbers in Python. */

import type { ComponentChildren } from "preact";

export function How({ code, children }: { code?: string; children: ComponentChildren }) {
  return (
    <details class="how">
      <summary>How was this computed?</summary>
      <div>
        {children}
        {code && (
          <pre tabIndex={0}>
            <code>{code}</code>
          </pre>
        )}
      </div>
    </details>
  );
}
