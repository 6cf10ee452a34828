/** The field of a text: what is typed is taken when the typing rests. */

import { useEffect, useId, useState } from "preact/hooks";
import { useRested } from "../hooks";

interface Props {
  label: string;
  hint: string;
  value: string;
  choose(text: string): void;
}

export function TextField({ label, hint, value, choose }: Props) {
  const id = useId();
  const [typed, setTyped] = useState<string | null>(null);
  const rested = useRested(typed, 300);
  useEffect(() => {
    if (rested !== null && rested !== value) choose(rested);
  }, [rested]);
  return (
    <div class="field wide">
      <label for={id}>{label}</label>
      <input
        id={id}
        class="main"
        data-main=""
        type="text"
        maxLength={2000}
        spellcheck={false}
        placeholder={hint}
        value={typed ?? value}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onBlur={() => {
          if (typed !== null && typed !== value) choose(typed);
          setTyped(null);
        }}
      />
    </div>
  );
}
