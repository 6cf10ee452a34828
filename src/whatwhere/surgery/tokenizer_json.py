"""Add tokens to tokenizer.json, or remove and renumber them: as JSON, so that unknown fields are kept."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError, TokenError
from whatwhere.escape import byte_alphabet, quoted
from whatwhere.models.checkpoint.tokenizer_files import built, pieces_of
from whatwhere.models.configuration.keys import Json
from whatwhere.what.text import ids_of_each, single_token

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Merge = tuple[str, str]
MODELS = ("WordLevel", "WordPiece", "Unigram", "BPE")
STALE = (
    "added_tokens.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "vocab.json",
    "vocab.txt",
)  # fmt: skip
"""Files of the vocabulary for older tokenizers, which are outdated once it has changed, and omitted."""


def ids_of(contents: Json) -> dict[str, int]:
    """Return token -> id, including added tokens."""
    return dict(pieces_of(contents)) | {str(t["content"]): int(t["id"]) for t in contents.get("added_tokens") or []}


def with_added(contents: Json, texts: Sequence[str]) -> tuple[Json, list[int]]:
    """Add tokens, matched in normalized text as by transformers, and return their ids.

    Where the normalizer changes a token so that it is not found inside a word, as Llama 2's, which puts "▁" before it,
    that token is matched in the text as it is written.
    """
    known, before, times = ids_of(contents), built(contents), Counter(texts)
    for text in texts:
        why = "is empty" if not text else _why_not_new(before, text, known)
        if why is not None:
            raise TokenError(f"the token {quoted(text)} {why}.\nChoose others.")
        if times[text] > 1:
            raise TokenError(f"{quoted(text)} occurs twice among the tokens to add.\nPass each token once.")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    first = max(known.values(), default=-1) + 1
    ids = list(range(first, first + len(texts)))
    new = [{"id": number, "content": text, **flags} for number, text in zip(ids, texts, strict=True)]
    changed = {**contents, "added_tokens": [*(contents.get("added_tokens") or []), *new]}
    for token, encoded in zip(new, ids_of_each(built(changed), [f"a{text}a" for text in texts]), strict=True):
        token["normalized"] = token["id"] in encoded
    for number, text, encoded in zip(ids, texts, ids_of_each(built(changed), texts), strict=True):
        if encoded != [number]:
            raise TokenError(
                f"with the token {quoted(text)} added, the tokenizer makes {len(encoded)} tokens of that text, not the "
                "new one.\nIt contains other added tokens: choose another text."
            )
    return changed, ids


def _why_not_new(tokenizer: "Tokenizer", text: str, known: Mapping[str, int]) -> str | None:
    """Return why a text cannot become a token of its own; None if it can."""
    if (number := single_token(tokenizer, text)) is not None:
        return f"is token #{number} already: the tokenizer encodes the text to it"
    if text not in known:
        return None
    if tokenizer.decode([known[text]], skip_special_tokens=False).strip() == text:
        return f"is token #{known[text]} already, though the tokenizer does not encode the text to it"
    return f"is how the vocabulary writes token #{known[text]}, which is not this text, and it can be written once"


def needed(contents: Json, ids: Iterable[int]) -> set[int]:
    """Return ids with those that must be kept with them: unknown and added tokens, bytes, and parts of merges."""
    model, known = contents["model"], ids_of(contents)
    model_type = model.get("type")
    if model_type not in MODELS:
        raise CheckpointError(
            f"tokenizer.json has a model of the type {quoted(str(model_type))}, but only {', '.join(MODELS)} can be "
            "trimmed."
        )
    stay = set(ids) | {int(token["id"]) for token in contents.get("added_tokens") or []}
    _processed(contents.get("post_processor"), stay.add)
    stay |= {known[token] for token in (model.get("unk_token"),) if token in known}
    if isinstance(model.get("unk_id"), int):
        stay.add(model["unk_id"])
    if model_type == "Unigram" and model["vocab"]:  # unknown characters are scored by the lowest score minus 10
        stay.add(min(range(len(model["vocab"])), key=lambda number: model["vocab"][number][1]))
    if model.get("byte_fallback"):
        stay |= {known[token] for n in range(256) if (token := f"<0x{n:02X}>") in known}
    return _with_merge_parts(contents, stay, known) if model_type == "BPE" else stay


def trimmed(contents: Json, new_ids: Mapping[int, int]) -> Json:
    """Keep the tokens in `new_ids`, old id -> new id, with at least those of `needed`, and remove the others."""
    changed, model = dict(contents), dict(contents["model"])
    if isinstance(model["vocab"], Mapping):
        kept = [(token, new_ids[number]) for token, number in model["vocab"].items() if number in new_ids]
        model["vocab"] = dict(sorted(kept, key=lambda pair: pair[1]))
    else:
        pieces = sorted((new_ids[number], row) for number, row in enumerate(model["vocab"]) if number in new_ids)
        if [number for number, _ in pieces] != list(range(len(pieces))):
            raise CheckpointError(
                "pieces of tokenizer.json are numbered by their order, but some ids to keep are not pieces.\n"
                "Keep only ids that are tokens."
            )
        model["vocab"] = [row for _, row in pieces]
    if isinstance(model.get("unk_id"), int):
        model["unk_id"] = new_ids[model["unk_id"]]
    if model["type"] == "BPE":
        known = model["vocab"]
        model["merges"] = [[a, b] for a, b in _merges_of(model) if {a, b, a + b} <= known.keys()]
    changed["model"] = model
    changed["added_tokens"] = [{**token, "id": new_ids[token["id"]]} for token in contents.get("added_tokens") or []]
    if isinstance(contents.get("padding"), Mapping) and contents["padding"].get("pad_id") in new_ids:
        changed["padding"] = {**contents["padding"], "pad_id": new_ids[contents["padding"]["pad_id"]]}
    changed["post_processor"] = _processed(contents.get("post_processor"), new_ids.__getitem__)
    return changed


def _processed(processor: Any, new_id: Callable[[int], Any]) -> Any:
    """Return a post-processor with new ids of the tokens that it puts around a text."""
    if not isinstance(processor, Mapping):
        return processor
    changed = dict(processor)
    if isinstance(processor.get("special_tokens"), Mapping):
        changed["special_tokens"] = {
            name: {**token, "ids": [new_id(number) for number in token["ids"]]}
            for name, token in processor["special_tokens"].items()
        }
    for name in ("sep", "cls"):
        if isinstance(processor.get(name), list):
            changed[name] = [processor[name][0], new_id(processor[name][1])]
    if isinstance(processor.get("processors"), list):
        changed["processors"] = [_processed(one, new_id) for one in processor["processors"]]
    return changed


def _merges_of(model: Json) -> list[Merge]:
    """Return the merges of a BPE model in their order; older files have strings instead of pairs."""
    merges: list[Merge] = []
    for merge in model.get("merges") or []:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2:
            raise CheckpointError(
                f"tokenizer.json has the merge {quoted(str(merge))}, which is not a pair.\nCreate the tokenizer again."
            )
        merges.append((str(parts[0]), str(parts[1])))
    return merges


def _with_merge_parts(contents: Json, ids: Iterable[int], known: Mapping[str, int]) -> set[int]:
    """Return ids with those of their parts, so that texts are still encoded to them."""
    # The merges that create a token depend on its characters alone: these are merged, and intermediate tokens are kept.
    model = contents["model"]
    if model.get("continuing_subword_prefix"):
        raise CheckpointError(
            "tokenizer.json has a BPE whose merges drop a prefix of continuations, which is not supported.\n"
            "Keep its vocabulary, and remove rows beyond it with: whatwhere resize --vocab-size."
        )
    ranks = {merge: rank for rank, merge in reversed(list(enumerate(_merges_of(model))))}
    tokens, suffix = {number: token for token, number in known.items()}, model.get("end_of_word_suffix") or ""
    stay = set(ids)
    # Characters that represent bytes, as in GPT-2, can encode any text.
    if "ByteLevel" in str(contents.get("decoder")) + str(contents.get("pre_tokenizer")):
        stay |= {known[token] for letter in byte_alphabet() for token in (letter, letter + suffix) if token in known}
    added = {token["id"] for token in contents.get("added_tokens") or []}
    for number in stay.intersection(tokens) - added:  # added tokens are matched as a whole
        stay |= {known[part] for part in _merged(tokens[number], suffix, ranks) if part in known}
    return stay


def _merged(token: str, suffix: str, ranks: Mapping[Merge, int]) -> set[str]:
    """Return all tokens that occur while the characters of one are merged as in BPE, the lowest rank first."""
    parts = list(token)
    if suffix and token.endswith(suffix) and len(token) > len(suffix):
        parts = list(token.removesuffix(suffix))
        parts[-1] += suffix
    tokens = set(parts)
    while pairs := [(ranks[pair], n) for n, pair in enumerate(pairwise(parts)) if pair in ranks]:
        _, n = min(pairs)
        parts[n : n + 2] = [parts[n] + parts[n + 1]]
        tokens.add(parts[n])
    return tokens
