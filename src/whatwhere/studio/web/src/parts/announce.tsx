/** A live region that announces changes to screen readers. */

import { useEffect, useState } from "preact/hooks";

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
