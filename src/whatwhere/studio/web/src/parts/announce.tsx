/** One place that tells a screen reader what has changed. */

import { useEffect, useState } from "preact/hooks";

let tell: (text: string) => void = () => undefined;

export function announce(text: string): void {
  tell(text);
}

export function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => {
    tell = setText;
    return () => {
      tell = () => undefined;
    };
  }, []);
  return (
    <div class="unseen" role="status" aria-live="polite">
      {text}
    </div>
  );
}
