"""tokenizer.json with other tokens: some added, or all but some removed and the rest numbered anew.

The file is changed as JSON, so that what is not spoken of here stays as it was, and is then read by the tokenizers
library, which has the last word.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError, TokenError
from whatwhere.interop.checkpoint.files import shown
from whatwhere.interop.surgery.merges import closed, merges_of, trimmed_merges

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODELS = ("WordLevel", "WordPiece", "Unigram", "BPE")
STALE = (
    "added_tokens.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "vocab.json",
    "vocab.txt",
)  # fmt: skip
"""Files that say the vocabulary once more, for tokenizers of an older kind: left out where it has changed."""


def built(said: Mapping[str, Any]) -> "Tokenizer":
    """Give the tokenizer that a file means; it neither cuts nor pads."""
    import json

    from tokenizers import Tokenizer

    try:
        made = Tokenizer.from_str(json.dumps(said))
    except BaseException as problem:  # the library is Rust, whose panics are no Exception
        if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise CheckpointError(
            f"the tokenizers library does not read tokenizer.json: {str(problem)[:300]}.\nMake the tokenizer anew."
        ) from None
    made.no_truncation()
    made.no_padding()
    return made


def ids_of(said: Mapping[str, Any]) -> dict[str, int]:
    """Give the id of each token, added ones included.

    >>> ids_of({"model": {"type": "Unigram", "vocab": [["a", -1.0]]}, "added_tokens": [{"id": 1, "content": "[P]"}]})
    {'a': 0, '[P]': 1}
    """
    model = said.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, Mapping):
        found = dict(vocabulary)
    elif isinstance(vocabulary, list):
        found = {str(row[0]): number for number, row in enumerate(vocabulary)}
    else:
        raise CheckpointError("tokenizer.json has no vocabulary where model.vocab should be.\nMake the tokenizer anew.")
    return found | {str(token["content"]): int(token["id"]) for token in said.get("added_tokens") or []}


def with_added(said: Mapping[str, Any], texts: Sequence[str]) -> tuple[dict[str, Any], list[int]]:
    """Add tokens, and give their ids: those behind the last.

    They match as transformers' add_tokens lets them: anywhere, in text as the tokenizer normalizes it.
    """
    known = ids_of(said)
    for text in texts:
        if not text or text in known:
            why = f"is token #{known[text]} already" if text else "is empty"
            raise TokenError(f"the token {shown(text)} {why}.\nAdd others.")
    if len(set(texts)) < len(texts):
        raise TokenError(f"{shown(max(texts, key=texts.count))} is to be added twice.\nGive each token once.")
    first = max(known.values(), default=-1) + 1
    new = [token_entry(text, first + n) for n, text in enumerate(texts)]
    made = {**said, "added_tokens": [*(said.get("added_tokens") or []), *new]}
    tokenizer = built(made)
    for token in new:
        encoded = tokenizer.encode(token["content"], add_special_tokens=False).ids
        if encoded != [token["id"]]:
            raise TokenError(
                f"with the token {shown(token['content'])} added, the tokenizer makes {len(encoded)} tokens of that "
                "text, not the new one.\nOther added tokens stand inside of it: choose another text."
            )
    return made, [token["id"] for token in new]


def token_entry(text: str, number: int) -> dict[str, Any]:
    """Give what tokenizer.json says of a token that was added."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    return {"id": number, "content": text, **flags}


def needed(said: Mapping[str, Any], ids: Iterable[int]) -> set[int]:
    """Give the ids that must stay so that these can: the unknown and added tokens, bytes, and what merges build on."""
    model, known = said["model"], ids_of(said)
    kind = model.get("type")
    if kind not in MODELS:
        raise CheckpointError(
            f"tokenizer.json holds a model of the kind {shown(str(kind))}, but only {', '.join(MODELS)} are trimmed."
        )
    stay = set(ids) | {int(token["id"]) for token in said.get("added_tokens") or []}
    stay |= {known[token] for token in (model.get("unk_token"),) if token in known}
    if isinstance(model.get("unk_id"), int):
        stay.add(model["unk_id"])
    if model.get("byte_fallback"):
        stay |= {known[token] for n in range(256) if (token := f"<0x{n:02X}>") in known}
    return closed(said, stay, known) if kind == "BPE" else stay


def trimmed(said: Mapping[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Keep the tokens that have a new place, and number them by it.

    Args:
        said: tokenizer.json.
        places: old id -> new id, of all that are `needed`.
    """
    made, model = dict(said), dict(said["model"])
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        kept = [(token, places[number]) for token, number in vocabulary.items() if number in places]
        model["vocab"] = dict(sorted(kept, key=lambda pair: pair[1]))
    else:
        kept_rows = [(places[number], row) for number, row in enumerate(vocabulary) if number in places]
        kept_rows.sort(key=lambda pair: pair[0])
        if [place for place, _ in kept_rows] != list(range(len(kept_rows))):
            raise CheckpointError(
                "tokenizer.json numbers its pieces as they stand, but other ids to keep stand between them.\n"
                "Keep only ids that are tokens."
            )
        model["vocab"] = [row for _, row in kept_rows]
    if isinstance(model.get("unk_id"), int):
        model["unk_id"] = places[model["unk_id"]]
    if model["type"] == "BPE":
        model["merges"] = trimmed_merges(merges_of(model), model["vocab"])
    made["model"] = model
    made["added_tokens"] = [{**token, "id": places[token["id"]]} for token in said.get("added_tokens") or []]
    if isinstance(said.get("padding"), Mapping) and said["padding"].get("pad_id") in places:
        made["padding"] = {**said["padding"], "pad_id": places[said["padding"]["pad_id"]]}
    made["post_processor"] = _processed(said.get("post_processor"), places)
    return made


def _processed(said: Any, places: Mapping[int, int]) -> Any:
    """Number the tokens that are put around a text anew."""
    if not isinstance(said, Mapping):
        return said
    made = dict(said)
    if isinstance(said.get("special_tokens"), Mapping):
        made["special_tokens"] = {
            name: {**token, "ids": [_place(places, number) for number in token["ids"]]}
            for name, token in said["special_tokens"].items()
        }
    for name in ("sep", "cls"):
        if isinstance(said.get(name), list):
            made[name] = [said[name][0], _place(places, said[name][1])]
    if isinstance(said.get("processors"), list):
        made["processors"] = [_processed(one, places) for one in said["processors"]]
    return made


def _place(places: Mapping[int, int], number: int) -> int:
    if number not in places:
        raise CheckpointError(
            f"tokenizer.json puts token #{number} around each text, which is to be removed.\nKeep that id."
        )
    return places[number]


def around(said: Any) -> set[int]:
    """Give the ids of tokens that are put around a text."""
    if not isinstance(said, Mapping):
        return set()
    found = {number for token in (said.get("special_tokens") or {}).values() for number in token["ids"]}
    found |= {said[name][1] for name in ("sep", "cls") if isinstance(said.get(name), list)}
    return found.union(*(around(one) for one in said.get("processors") or []))
