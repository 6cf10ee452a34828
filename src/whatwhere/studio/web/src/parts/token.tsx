/** A token made visible: code points for invisible characters, and a writing direction of its own. */

import { characters, face, visibleToken } from "../escape";

interface Props {
  word: string;
  /** The text that the token decodes to; null where it is a part of a character's bytes. */
  text?: string | null | undefined;
  /** The address of a link. */
  href?: string;
}

export function TokenLabel({ word, text = null, href }: Props) {
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
