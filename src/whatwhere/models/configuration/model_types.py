"""The one list of model types, which model_types.json holds, and what is known of types that are not read.

`python -m docs.generate.families` writes the file again: defaults are those of transformers' classes.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from whatwhere.errors import CheckpointError
from whatwhere.models.configuration.model_type import ModelType, Row
from whatwhere.models.configuration.positions import first_row, learned_rule

FILE = Path(__file__).with_suffix(".json")


class ModelTypes(Row, frozen=True):
    """The data file.

    Args:
        transformers: version of transformers, whose defaults these are.
        types: Hugging Face's `model_type` -> how its configuration is read, of those that are in transformers.
        parts: the same for types that occur as one part of a different configuration alone.
        remote: the same for types whose code is published beside their files. `patch` does not know their modules.
        unlike: types of transformers that are not read, and cannot be read as others either -> what they compute that
            no scheme here does, or that none of their keys shows.
        unread: types with code of their own that are not read -> the reason.
        texts: type of a text -> types of text and images or sound whose text it is, if their configuration has no type.
        classes: classes of LLaVA's authors, whose files have the keys of the text beside others -> type of the text.
        inner: types made of other configurations -> part of the model -> keys that lead to its configuration; "" where
            one part alone is of text. The first is the default.
        spread: types -> keys that lead, in the files of their authors, to those of the text, read as if beside.
        otherwise: types -> a key, and the value of it with which the code of their authors is that of a different type.
        of_others: types -> keys beside their `text_config` that concern sounds and video, or coordinates, not the text.
        outer_notes: types with a text like that of others -> what differs outside of the text's configuration.
        outer_unread: types -> keys of their text that concern what differs.
        long_text_notes: keys of attention over long texts alone (Qwen2.5-1M, MiniCPM4) -> what they do.
    """

    transformers: str
    types: dict[str, ModelType]
    parts: dict[str, ModelType]
    remote: dict[str, ModelType]
    unlike: dict[str, str]
    unread: dict[str, str]
    texts: dict[str, tuple[str, ...]]
    classes: dict[str, str]
    inner: dict[str, dict[str, tuple[str, ...]]]
    spread: dict[str, tuple[str, ...]]
    otherwise: dict[str, tuple[str, Any, str]]
    of_others: dict[str, tuple[str, ...]]
    outer_notes: dict[str, str]
    outer_unread: dict[str, tuple[str, ...]]
    long_text_notes: dict[str, str]


DATA = msgspec.json.decode(FILE.read_bytes(), type=ModelTypes)
MODEL_TYPES: Mapping[str, ModelType] = DATA.types
READ_TYPES: Mapping[str, ModelType] = {**DATA.types, **DATA.parts, **DATA.remote}
"""All model types that are read."""

HEARING = frozenset(name for name, kind in MODEL_TYPES.items() if kind.sound)
"""Types whose encoder takes sound."""

_SUFFIX = re.compile("_text(_model)?$")
TEXT_TYPES: Mapping[str, str] = {
    **{_SUFFIX.sub("", name): name for name in (*READ_TYPES, *DATA.unlike) if _SUFFIX.search(name)},
    **{whole: text for text, wholes in DATA.texts.items() for whole in wholes},
}
"""Model types of text and images or sound -> the type of their text, if its configuration does not have one."""

TEXT_KEYS = ("text_config", "llm_config", "language_config", "llm_cfg")
"""Keys of the configuration of a text within that of a model of text and images, the usual one first."""


def require_likeness(name: str) -> None:
    """Raise CheckpointError if a model type may not be read as a different one.

    Examples:
        >>> require_likeness("funnel")
        Traceback (most recent call last):
        whatwhere.errors.CheckpointError: model_type 'funnel' cannot be read as another type: its layers shorten the
        text by pooling, so that positions of later layers are those of groups of tokens.
        To see what its attention does with positions: whatwhere probe funnel.
    """
    if name in DATA.unlike:
        raise CheckpointError(
            f"model_type {name!r} cannot be read as another type: {DATA.unlike[name]}.\nTo see what its attention does "
            f"with positions: whatwhere probe {name}."
        )
    if name in DATA.unread:
        raise CheckpointError(f"model_type {name!r} cannot be read as a different type: {DATA.unread[name]}.")


def find_model_type(name: str) -> ModelType:
    """Return how a model type is read.

    Raises:
        CheckpointError: If it is not; the message suggests a similar one.

    Examples:
        >>> find_model_type("lama")
        Traceback (most recent call last):
        whatwhere.errors.CheckpointError: model_type 'lama' is not one that whatwhere reads.
        Did you mean 'llama'?
        No key of a configuration states which features make a pair, nor in which row of a table position 0 is: if you
        know a type that does both alike, name it, from_huggingface(config, like='llama').
    """
    if name in READ_TYPES:
        return READ_TYPES[name]
    if name in DATA.unlike:
        raise CheckpointError(
            f"model_type {name!r} is not one that whatwhere reads: {DATA.unlike[name]}.\nTo see what its attention "
            f"does with positions: whatwhere probe {name}."
        )
    if name in DATA.unread:
        raise CheckpointError(f"model_type {name!r} is not one that whatwhere reads: {DATA.unread[name]}.")
    near = get_close_matches(name, READ_TYPES, n=1)
    hint = f"\nDid you mean {near[0]!r}?" if near else ""
    raise CheckpointError(
        f"model_type {name!r} is not one that whatwhere reads.{hint}\n"
        "No key of a configuration states which features make a pair, nor in which row of a table position 0 is: if "
        "you\nknow a type that does both alike, name it, from_huggingface(config, like='llama')."
    )


def suggest_model_type(architectures: object) -> str:
    """Return the model type of the first name in `architectures`, as code; without one, how to write it.

    Examples:
        >>> suggest_model_type(["GPT2LMHeadModel"]), suggest_model_type(["LlamaForCausalLM"]), suggest_model_type(None)
        ("'gpt2'", "'llama'", "'...'")
    """
    first = architectures[0] if isinstance(architectures, list | tuple) and architectures else None
    stem = (
        re.sub("(For[A-Z].*|LMHead.*|DoubleHeads.*|PreTrained.*|Text)?(Model)?$", "", first, count=1)
        if isinstance(first, str)
        else ""
    )
    plain = {re.sub("[-_]", "", name): name for name in (*READ_TYPES, *TEXT_TYPES, *DATA.inner)}
    near = get_close_matches(stem.lower(), plain, n=1, cutoff=0.85)
    return repr(plain[near[0]]) if near else "'...'"


def nested_text(config: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return the key of the text in a configuration of a model of text and images, and the text's own configuration.

    Both are empty where there is none.

    Examples:
        >>> nested_text({"llm_config": {"vocab_size": 8}}), nested_text({"vocab_size": 8})
        (('llm_config', {'vocab_size': 8}), ('', {}))
    """
    for key in TEXT_KEYS:
        if isinstance(text := config.get(key), Mapping):
            return key, text
    return "", {}


def learned_offset(config: Mapping[str, object]) -> int | None:
    """Return the row of position 0 in a learned position table, by `model_type` and `pad_token_id` alone.

    It is None if the model type is unknown, or has no such table.

    Examples:
        >>> [learned_offset({"model_type": name}) for name in ("opt", "roberta", "trocr", "llama")]
        [2, 2, 2, None]
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in READ_TYPES:
        return None
    kind = READ_TYPES[name]
    rule = learned_rule(kind)
    if rule is None:
        return None
    padding_idx = config.get("pad_token_id", kind.defaults.get("pad_token_id"))
    if not isinstance(padding_idx, int) or isinstance(padding_idx, bool) or padding_idx < 0:
        padding_idx = None
    return first_row(rule.settings.get("offset", 0), padding_idx)
