/** A field to look up a token: by a part of its text, or by #id; the arrow keys move through the list of matches. */

import { useId, useState } from "preact/hooks";
import { useQuery, useRested } from "../hooks";
import { whole } from "../numbers";
import { face, visibleToken } from "../escape";
import { TokenLabel } from "./token";

interface Props {
  label: string;
  /** The chosen token, as text or #id. */
  value: string;
  choose(token: string): void;
  /** Whether Ctrl+K leads here. */
  main?: boolean;
  hint?: string;
}

export function TokenField({ label, value, choose, main = false, hint }: Props) {
  const id = useId();
  const [typed, setTyped] = useState<string | null>(null);
  const [at, setAt] = useState(-1);
  const query = useRested(typed ?? "", 120);
  const { answer } = useQuery("tokens.find", query.trim() === "" ? null : { text: query, most: 12 });
  const matches = typed !== null && typed.trim() !== "" && answer ? answer : null;
  // A chosen token is kept as #id, since several may have the same text; its text is shown.
  const chosen = typed === null && /^#\d+$/.test(value) ? value : null;
  const { answer: named } = useQuery("tokens.find", chosen === null ? null : { text: chosen, most: 1 });
  const shown =
    chosen !== null && named?.words.length && `#${named.ids.values[0]}` === chosen
      ? visibleToken(face(named.words[0]!, named.texts[0] ?? null))
      : value;
  const open = matches !== null && matches.ids.values.length > 0;
  const take = (token: string) => {
    setTyped(null);
    setAt(-1);
    if (token !== "") choose(token);
  };
  const keys = (event: KeyboardEvent) => {
    const count = matches?.ids.values.length ?? 0;
    if (event.key === "ArrowDown" && count) setAt((at + 1) % count);
    else if (event.key === "ArrowUp" && count) setAt((at + count - (at < 0 ? 0 : 1)) % count);
    else if (event.key === "Enter") take(at >= 0 && matches ? `#${matches.ids.values[at]}` : (typed ?? value));
    else if (event.key === "Escape") {
      setTyped(null);
      setAt(-1);
    } else return;
    event.preventDefault();
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="text"
        role="combobox"
        class={main ? "main" : undefined}
        data-main={main ? "" : undefined}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        aria-autocomplete="list"
        aria-expanded={open}
        aria-controls={`${id}-list`}
        aria-activedescendant={open && at >= 0 ? `${id}-${at}` : undefined}
        placeholder={hint ?? "text or #id"}
        value={typed ?? shown}
        title={chosen ?? undefined}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setAt(-1);
        }}
        onFocus={(event) => event.currentTarget.select()}
        onBlur={() => setTyped(null)}
        onKeyDown={keys}
      />
      <ul
        id={`${id}-list`}
        role="listbox"
        aria-label={`tokens that contain ${visibleToken(query)}`}
        hidden={!open}
        class="matches"
      >
        {open &&
          matches.words.map((word, n) => (
            // On pointer down: before a click arrives, the field has lost its focus and hidden this list.
            <li
              key={matches.ids.values[n]}
              id={`${id}-${n}`}
              role="option"
              aria-selected={n === at}
              onPointerDown={(event) => {
                event.preventDefault();
                take(`#${matches.ids.values[n]}`);
                (document.activeElement as HTMLElement | null)?.blur();
              }}
            >
              <TokenLabel word={word} text={matches.texts[n] ?? null} />
              <small>
                {matches.kinds[n]} · #{matches.ids.values[n]}
              </small>
            </li>
          ))}
        {open && matches.count > matches.words.length && (
          <li role="presentation" class="more">
            and {whole(matches.count - matches.words.length)} more: type on
          </li>
        )}
      </ul>
    </div>
  );
}
