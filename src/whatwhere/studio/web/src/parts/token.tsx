/** A token as a reader can see it: signs for what has no shape, and a direction of its own. */

import { cut, face, readable, signs } from "../signs";

interface Props {
  word: string;
  /** What the token stands for; null where it is a part of a character's bytes. */
  text: string | null;
  /** Where it leads; without, it is no link. */
  href?: string;
}

export function TokenLabel({ word, text, href }: Props) {
  const parts = signs(face(word, text)).map((sign, n) =>
    sign.stands ? (
      <span key={n} class="stands">
        {sign.text}
      </span>
    ) : (
      sign.text
    ),
  );
  const title = `in the vocabulary: ${readable(cut(word))}`;
  // Inline code isolates: a token that is written from right to left turns nothing but itself.
  const shown = (
    <bdi class="token" dir="auto">
      {parts}
    </bdi>
  );
  return href === undefined ? (
    <span title={title}>{shown}</span>
  ) : (
    <a href={href} title={title}>
      {shown}
    </a>
  );
}
