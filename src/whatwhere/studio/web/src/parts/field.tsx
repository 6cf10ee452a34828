/** Where a token is asked for: type a part of it, or #id; the list below is walked with the arrow keys. */

import { useId, useState } from "preact/hooks";
import { useQuery, useRested } from "../hooks";
import { whole } from "../numbers";
import { face, visibleToken } from "../escape";
import { TokenLabel } from "./token";

interface Props {
  label: string;
  /** The token that is asked for now, as text or #id. */
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
  const asked = useRested(typed ?? "", 120);
  const { answer } = useQuery("tokens.find", asked.trim() === "" ? null : { text: asked, most: 12 });
  const found = typed !== null && typed.trim() !== "" && answer ? answer : null;
  // A token that was chosen is kept as #id, for several may read alike; shown is what it reads.
  const chosen = typed === null && /^#\d+$/.test(value) ? value : null;
  const { answer: named } = useQuery("tokens.find", chosen === null ? null : { text: chosen, most: 1 });
  const shown =
    chosen !== null && named?.words.length && `#${named.ids.values[0]}` === chosen
      ? visibleToken(face(named.words[0]!, named.texts[0] ?? null))
      : value;
  const open = found !== null && found.ids.values.length > 0;
  const take = (token: string) => {
    setTyped(null);
    setAt(-1);
    if (token !== "") choose(token);
  };
  const keys = (event: KeyboardEvent) => {
    const count = found?.ids.values.length ?? 0;
    if (event.key === "ArrowDown" && count) setAt((at + 1) % count);
    else if (event.key === "ArrowUp" && count) setAt((at + count - (at < 0 ? 0 : 1)) % count);
    else if (event.key === "Enter") take(at >= 0 && found ? `#${found.ids.values[at]}` : (typed ?? value));
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
        aria-label={`tokens that hold ${visibleToken(asked)}`}
        hidden={!open}
        class="found"
      >
        {open &&
          found.words.map((word, n) => (
            // On pointer down: the field loses its focus, and this list with it, before a click would come.
            <li
              key={found.ids.values[n]}
              id={`${id}-${n}`}
              role="option"
              aria-selected={n === at}
              onPointerDown={(event) => {
                event.preventDefault();
                take(`#${found.ids.values[n]}`);
                (document.activeElement as HTMLElement | null)?.blur();
              }}
            >
              <TokenLabel word={word} text={found.texts[n] ?? null} />
              <small>
                {found.kinds[n]} · #{found.ids.values[n]}
              </small>
            </li>
          ))}
        {open && found.count > found.words.length && (
          <li role="presentation" class="more">
            and {whole(found.count - found.words.length)} more: type on
          </li>
        )}
      </ul>
    </div>
  );
}
