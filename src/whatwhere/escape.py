"""Text that a file or a request brings, made safe to show: the same way in a terminal, on a page and in an error.

Tokens, names of tensors and paths may hold anything: escape sequences that a terminal would obey, marks that change the
direction of reading, blanks that nobody sees. Each such character is shown as its code point, ⟨U+202E⟩. The studio's
page does the same in web/src/escape.ts, and a test compares the two.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

_BLANKS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
_UNSEEN = frozenset("\u115f\u1160\u3164\uffa0\u2800") | {chr(n) for n in range(0xFE00, 0xFE10)}
"""Characters of other categories that have no ink: fillers, the empty Braille pattern, variation selectors."""

MAX_TOKEN = 48  # characters of a token that are shown; the middle of a longer one is omitted


def visible(text: object) -> str:
    """Return text in which every character can be seen: others are written as their code points.

    Spaces stay, also those that do not break, which keep a number beside its unit.
    """
    written = str(text)
    if written.isascii() and written.isprintable():
        return written
    return "".join(char if char in " \u00a0" or not _unseen(char) else _code(char) for char in written)


def visible_token(text: str, most: int = MAX_TOKEN) -> str:
    """Return a token in which every character can be seen, blanks and combining marks included: ␣a⟨U+202E⟩."""
    shown: list[str] = []
    on_letter = False
    for char in text:
        if char in _BLANKS or _unseen(char):
            shown.append(_BLANKS.get(char) or _code(char))
            on_letter = False
        else:
            # A combining mark needs a character before it.
            shown.append(f"◌{char}" if unicodedata.category(char)[0] == "M" and not on_letter else char)
            on_letter = True
    return _shortened(shown, most)


def shown_token(token: str, text: str | None) -> str:
    """Return what is shown of a token, on every page and in every terminal: its text, or its spelling.

    The spelling says more where a token is a part of a word, or has no text. Bytes that are not text, whose `text`
    is None, are shown as such.
    """
    return visible_token(readable_token(token, text))


def readable_token(token: str, text: str | None) -> str:
    """Return a token as people read it, with blanks and marks as they are; see `shown_token`."""
    letters = byte_alphabet()
    if text is None and not token.isascii() and all(letter in letters for letter in token):
        return "".join(chr(byte) if byte < 128 else f"<0x{byte:02X}>" for byte in map(letters.__getitem__, token))
    return text if text and not token.startswith("##") else token


@cache
def byte_alphabet() -> dict[str, int]:
    """Return the character that represents each byte in byte-level vocabularies: those of GPT-2, Llama 3 and Qwen.

    Printable bytes represent themselves; the other 68 take the characters from U+0100 on, in order, so that the space
    is Ġ. This is GPT-2's own table, https://github.com/openai/gpt-2.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def quoted(text: str, most: int = 80) -> str:
    """Return a name in quotation marks, every character of it visible, cut where it is long."""
    return f"'{visible(text if len(text) <= most else text[:most] + '...')}'"


def cut(text: str, most: int = MAX_TOKEN) -> str:
    """Return text of at most so many characters, its beginning and its end."""
    return _shortened(text, most)


def _shortened(parts: Sequence[str], most: int) -> str:
    """Return parts as one text of at most so many characters, none of them cut in two: a code point stays whole."""
    if sum(map(len, parts)) <= most:
        return "".join(parts)
    begin = most * 3 // 4
    first = _fitting(parts, begin)
    last = len(parts) - _fitting(parts[::-1], most - begin - 1)
    return "".join((*parts[:first], "…", *parts[last:]))


def _fitting(parts: Sequence[str], room: int) -> int:
    """Return how many parts from the front have so many characters at most."""
    return bisect_right(list(accumulate(map(len, parts))), room)


def _unseen(char: str) -> bool:
    return unicodedata.category(char)[0] in "CZ" or char in _UNSEEN or 0xE0100 <= ord(char) <= 0xE01EF


def _code(char: str) -> str:
    return f"⟨U+{ord(char):04X}⟩"
