/** How a figure was computed: the formula, its inputs, and Python lines that compute the same numbers. */

import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import { OpenContext } from "../hooks";
import { runnable } from "../python";

export function How({ code, children }: { code?: string | null; children: ComponentChildren }) {
  const open = useContext(OpenContext);
  const lines = code && runnable(code, open);
  return (
    <details class="how">
      <summary>How was this computed?</summary>
      <div>
        {children}
        {lines && (
          <pre tabIndex={0}>
            <code>{lines}</code>
          </pre>
        )}
      </div>
    </details>
  );
}
