"""Byte-pair encoding with fewer tokens: which others a token is built of, and the merges that build it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from whatwhere.analysis.kinds import byte_alphabet
from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.files import shown

Merge = tuple[str, str]


def merges_of(model: Mapping[str, Any]) -> list[Merge]:
    """Give the merges of a model, the first first; older files write each as one string."""
    found: list[Merge] = []
    for merge in model.get("merges") or []:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2:
            raise CheckpointError(
                f"tokenizer.json has the merge {shown(str(merge))}, which is no pair.\nMake the tokenizer anew."
            )
        found.append((str(parts[0]), str(parts[1])))
    return found


def closed(said: Mapping[str, Any], ids: Iterable[int], known: Mapping[str, int]) -> set[int]:
    """Add to some tokens what they are built of, so that whatever was encoded to them still is.

    The merges that make a token in a text all lie within it, and are those that its own letters undergo alone. So it is
    enough to merge each token's letters, and to keep what arises on the way. Where letters are bytes, all of them stay:
    any text can be encoded by them.
    """
    model = said["model"]
    if model.get("continuing_subword_prefix"):
        raise CheckpointError(
            "tokenizer.json holds a BPE whose merges drop a prefix of continuations, which cannot be followed.\n"
            "Keep its vocabulary, and remove rows beyond it with: whatwhere resize --vocab-size."
        )
    ranks = {merge: rank for rank, merge in reversed(list(enumerate(merges_of(model))))}
    tokens, suffix = {number: token for token, number in known.items()}, model.get("end_of_word_suffix") or ""
    stay = {number for number in ids if number in tokens}
    if by_bytes(said):
        stay |= {known[token] for letter in byte_alphabet() for token in (letter, letter + suffix) if token in known}
    added = {token["id"] for token in said.get("added_tokens") or []}
    for number in stay - added:  # what was added is found in the text as a whole
        stay |= {known[part] for part in _built(_letters(tokens[number], suffix), ranks) if part in known}
    return stay | {number for number in ids if number not in tokens}


def by_bytes(said: Mapping[str, Any]) -> bool:
    """Tell whether the letters of a tokenizer stand for bytes, as GPT-2's do."""
    return "ByteLevel" in str(said.get("decoder")) + str(said.get("pre_tokenizer"))


def trimmed_merges(merges: Sequence[Merge], vocabulary: Mapping[str, int]) -> list[list[str]]:
    """Keep the merges whose parts and product are in the vocabulary, in their order.

    Another token that could arise so is in the vocabulary as well, and arose before: what is kept runs as it did.
    """
    return [[a, b] for a, b in merges if a in vocabulary and b in vocabulary and a + b in vocabulary]


def _letters(token: str, suffix: str) -> list[str]:
    if suffix and token.endswith(suffix) and len(token) > len(suffix):
        word = token.removesuffix(suffix)
        return [*word[:-1], word[-1] + suffix]
    return list(token)


def _built(letters: list[str], ranks: Mapping[Merge, int]) -> set[str]:
    """Merge letters as the model does, the lowest rank first, and give all that arises."""
    parts, seen = list(letters), set(letters)
    while len(parts) > 1:
        pairs = [(ranks[pair], n) for n, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not pairs:
            break
        _, place = min(pairs)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        seen.add(parts[place])
    return seen
