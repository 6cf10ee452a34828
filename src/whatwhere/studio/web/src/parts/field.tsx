/** Fields of a view: for a text, and to look up a token by a part of its text or by #id. */

import { useEffect, useId, useState } from "preact/hooks";
import { characters, face, shownToken, visibleToken } from "../escape";
import { useQuery, useRested } from "../hooks";
import { whole } from "../numbers";
import { useSetting } from "./controls";
import type { Settings } from "../source";

interface Props {
  label: string;
  name: string;
  hint?: string;
}

/** The field of a text, to which Ctrl+K leads: what is typed is taken when the typing rests. */
export function TextField({ label, hint, ...bound }: Props & { set?(text: string): Settings }) {
  const id = useId();
  const [value, change] = useSetting<string>({ label, ...bound });
  const [typed, setTyped] = useState<string | null>(null);
  const rested = useRested(typed, 300);
  const take = (text: string | null) => text !== null && text !== value && change(text, true);
  useEffect(() => void take(rested), [rested]);
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
          take(typed);
          setTyped(null);
        }}
      />
    </div>
  );
}

/** The field of a token; the arrow keys move through the list of matches. */
export function TokenField({ label, name, main = false, hint }: Props & { main?: boolean }) {
  const id = useId();
  const [value, choose] = useSetting<string>({ label, name });
  const [typed, setTyped] = useState<string | null>(null);
  const [at, setAt] = useState(-1);
  const query = useRested(typed ?? "", 120);
  const { answer } = useQuery("tokens.find", query.trim() === "" ? null : { text: query, most: 12 });
  const matches = typed !== null && typed.trim() !== "" && answer ? answer : null;
  const ids = Array.from(matches?.ids.values ?? []);
  // A chosen token is kept as #id, since several may have the same text; its text is shown.
  const chosen = typed === null && /^#\d+$/.test(value) ? value : null;
  const { answer: named } = useQuery("tokens.find", chosen === null ? null : { text: chosen, most: 1 });
  const isNamed = chosen !== null && named?.words.length && `#${named.ids.values[0]}` === chosen;
  const type = (text: string | null) => {
    setTyped(text);
    setAt(-1);
  };
  const take = (token: string) => {
    type(null);
    if (token !== "") choose(token);
  };
  const keys = (event: KeyboardEvent) => {
    const count = ids.length;
    if (event.key === "ArrowDown" && count) setAt((at + 1) % count);
    else if (event.key === "ArrowUp" && count) setAt((at + count - (at < 0 ? 0 : 1)) % count);
    else if (event.key === "Enter") take(at >= 0 && count ? `#${ids[at]}` : (typed ?? value));
    else if (event.key === "Escape") type(null);
    else return;
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
        aria-expanded={ids.length > 0}
        aria-controls={`${id}-list`}
        aria-activedescendant={ids.length && at >= 0 ? `${id}-${at}` : undefined}
        placeholder={hint ?? "text or #id"}
        value={typed ?? (isNamed ? shownToken(named.words[0]!, named.texts[0]) : value)}
        title={chosen ?? undefined}
        onInput={(event) => type(event.currentTarget.value)}
        onFocus={(event) => event.currentTarget.select()}
        onBlur={() => setTyped(null)}
        onKeyDown={keys}
      />
      <ul
        id={`${id}-list`}
        role="listbox"
        aria-label={`tokens that contain ${visibleToken(query)}`}
        hidden={!ids.length}
        class="matches"
      >
        {matches?.words.map((word, n) => (
          // On pointer down: before a click arrives, the field has lost its focus and hidden this list.
          <li
            key={ids[n]}
            id={`${id}-${n}`}
            role="option"
            aria-selected={n === at}
            onPointerDown={(event) => {
              event.preventDefault();
              take(`#${ids[n]}`);
              (document.activeElement as HTMLElement | null)?.blur();
            }}
          >
            <TokenLabel word={word} text={matches.texts[n]} />
            <small>
              {matches.kinds[n]} · #{ids[n]}
            </small>
          </li>
        ))}
        {matches && ids.length > 0 && matches.count > ids.length && (
          <li role="presentation" class="more">
            and {whole(matches.count - ids.length)} more: type on
          </li>
        )}
      </ul>
    </div>
  );
}

interface TokenProps {
  word: string;
  /** The text that the token decodes to; null where it is a part of a character's bytes. */
  text?: string | null | undefined;
  href?: string;
}

export function TokenLabel({ word, text = null, href }: TokenProps) {
  const parts = characters(face(word, text)).map((shown, n) =>
    shown.replaced ? (
      <span key={n} class="replaced">
        {shown.text}
      </span>
    ) : (
      shown.text
    ),
  );
  const title = `in the vocabulary: ${visibleToken(word)}`;
  // bdi isolates: a token that is written from right to left changes the direction of nothing but itself.
  const label = (
    <bdi class="token" dir="auto">
      {parts}
    </bdi>
  );
  return href === undefined ? (
    <span title={title}>{label}</span>
  ) : (
    <a href={href} title={title}>
      {label}
    </a>
  );
}
