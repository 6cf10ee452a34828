/** Text of a file made safe to show, by the rules of escape.py, character by character. A test compares the two. */

/** A character of a token as it is shown. */
export interface Shown {
  text: string;
  /** Whether the text replaces characters that could not be seen. */
  replaced: boolean;
}

const BLANKS: Record<string, string> = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍" };
const UNSEEN = /[\p{C}\p{Z}\u115F\u1160\u3164\uFFA0\u2800\uFE00-\uFE0F\u{E0100}-\u{E01EF}]/u;
const MARK = /^\p{M}$/u;

/** The most characters of a token that are shown; of a longer one, the middle is replaced by an ellipsis. */
const MAX_TOKEN = 48;

/** Return text in which every character can be seen: others are written as their code points. Spaces stay. */
export function visible(text: string): string {
  return Array.from(text, (char) => (char !== " " && char !== "\u00A0" && UNSEEN.test(char) ? code(char) : char)).join(
    "",
  );
}

/** Return a token in which every character can be seen, blanks and combining marks included. */
export function visibleToken(text: string, most = MAX_TOKEN): string {
  return characters(text, most)
    .map((shown) => shown.text)
    .join("");
}

/** Return the same in parts: runs of the token's own characters, and what replaces the others. */
export function characters(text: string, most = MAX_TOKEN): Shown[] {
  const parts: Shown[] = [];
  for (const shown of shortened(escaped(text), most)) {
    const last = parts.at(-1);
    if (last && !last.replaced && !shown.replaced) last.text += shown.text;
    else parts.push({ ...shown });
  }
  return parts;
}

/** Return what to show of a token: its text, or the vocabulary's spelling, by the rule of `shown_token` in escape.py. */
export function face(word: string, text: string | null): string {
  if (text === null && /[^\0-\x7F]/.test(word)) {
    const bytes = Array.from(word, byteOf);
    if (!bytes.includes(undefined)) return bytes.map((byte) => shownByte(byte ?? 0)).join("");
  }
  return text === null || word.startsWith("##") || text === "" ? word : text;
}

/** Return a token, every character of which can be seen: its text, or the vocabulary's spelling. */
export function shownToken(word: string, text: string | null | undefined): string {
  return visibleToken(face(word, text ?? null));
}

export function shownTokens({ words, texts }: { words: string[]; texts: (string | null)[] }): string[] {
  return words.map((word, n) => shownToken(word, texts[n]));
}

/** Return the byte that a character represents in byte-level vocabularies, by `byte_alphabet` of escape.py. */
function byteOf(char: string): number | undefined {
  const code = char.codePointAt(0) ?? 0;
  const printable = (n: number) => (n > 32 && n < 127) || (n > 160 && n < 256 && n !== 173);
  return printable(code) ? code : Array.from({ length: 256 }, (_, n) => n).filter((n) => !printable(n))[code - 256];
}

function shownByte(byte: number): string {
  return byte < 128 ? String.fromCharCode(byte) : `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

function escaped(text: string): Shown[] {
  let onLetter = false; // a combining mark needs a letter before it
  return Array.from(text, (char) => {
    const blank = BLANKS[char];
    if (blank !== undefined || UNSEEN.test(char)) {
      onLetter = false;
      return { text: blank ?? code(char), replaced: true };
    }
    const shown = MARK.test(char) && !onLetter ? `◌${char}` : char;
    onLetter = true;
    return { text: shown, replaced: false };
  });
}

/** Return characters that take at most so many code points, none of them cut in two. */
function shortened(all: Shown[], most: number): Shown[] {
  const sizes = all.map(({ text }) => Array.from(text).length);
  if (sizes.reduce((sum, size) => sum + size, 0) <= most) return all;
  const begin = Math.floor((most * 3) / 4);
  const last = all.length - fitting([...sizes].reverse(), most - begin - 1);
  return [...all.slice(0, fitting(sizes, begin)), { text: "…", replaced: false }, ...all.slice(last)];
}

function fitting(sizes: number[], room: number): number {
  let sum = 0;
  const first = sizes.findIndex((size) => (sum += size) > room);
  return first < 0 ? sizes.length : first;
}

function code(char: string): string {
  return `⟨U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
