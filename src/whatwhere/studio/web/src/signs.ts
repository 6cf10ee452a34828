/** Text in which every sign can be seen: blanks, controls, marks without a letter, signs that turn the direction. */

export interface Sign {
  text: string;
  /** What stands for a sign that would not be seen, rather than the sign itself. */
  stands: boolean;
}

const BLANKS: Record<string, string> = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍" };
const UNSEEN = /[\p{C}\p{Z}\u115F\u1160\u3164\uFFA0\u2800\uFE00-\uFE0F\u{E0100}-\u{E01EF}]/u;
const MARK = /^\p{M}$/u;

export function signs(text: string): Sign[] {
  const found: Sign[] = [];
  let seen = false; // whether a mark has something to stand on
  for (const char of text) {
    const blank = BLANKS[char];
    if (blank !== undefined || UNSEEN.test(char)) {
      found.push({ text: blank ?? code(char), stands: true });
      seen = false;
      continue;
    }
    const shown = MARK.test(char) && !seen ? `◌${char}` : char;
    const last = found.at(-1);
    if (last && !last.stands) last.text += shown;
    else found.push({ text: shown, stands: false });
    seen = true;
  }
  return found;
}

/** Name a sign by its number, as Unicode does. */
export function code(char: string): string {
  return `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Give plain text with signs in place of what cannot be seen: for tables, exports, and screen readers. */
export function readable(text: string): string {
  return signs(text)
    .map((sign) => (sign.stands && sign.text.length > 1 ? `⟨${sign.text}⟩` : sign.text))
    .join("");
}

/** Longer tokens are cut: some vocabularies have one of a hundred blanks, and lists of words one of a whole page. */
const LONGEST = 80;

/** Give the beginning of what is too long to show, and how long it is. */
export function cut(text: string): string {
  if (text.length <= LONGEST) return text;
  const signs = Array.from(text);
  return signs.length <= LONGEST ? text : `${signs.slice(0, LONGEST / 2).join("")}… (${signs.length} characters)`;
}

/** Give what to show of a token: its text, or as the vocabulary writes it where that says more. */
export function face(word: string, text: string | null): string {
  return cut(text === null || word.startsWith("##") || text === "" ? word : text);
}
