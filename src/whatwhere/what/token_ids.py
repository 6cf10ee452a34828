"""Token ids in the configurations of transformers: the keys that contain them, and what depends on the padding id."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from whatwhere.errors import TokenError

_ENDS = ("_token_id", "_token_ids", "_token_index", "suppress_tokens")
_NAMES = (
    "bos_index", "eos_index", "pad_index", "unk_index", "mask_index", "pad_id", "im_start_id", "im_end_id",
    "im_newline_id", "image_patch_id",
)  # fmt: skip
_MAPS = ("_to_id", "_to_code_id", "vocabulary_map")
_SEQUENCES = ("bad_words_ids", "force_words_ids")
_OTHER_VOCABULARIES = ("codebook", "codec", "t2u", "vocoder", "char_", "label")
_OTHER_MODALITIES = (
    *_OTHER_VOCABULARIES, "vision", "visual", "image", "audio", "speech", "video", "talker", "code2wav", "depth",
    "quantiz", "entity", "protein", "qformer",
)  # fmt: skip

_MAY_BE_NULL = tuple(
    f"{name}_token_id" for name in ("pad", "bos", "eos", "sep", "cls", "mask", "unk", "eod", "forced_bos", "forced_eos")
)
_ALL_NEEDED = (
    "cwm", "emu3_text_model", "eurobert", "flaubert", "glm_image_text", "gradium_phonon_tts", "lasr_ctc",
    "mllama_text_model", "modernbert-decoder", "muse_glimmer_assistant", "nemotron3_5_asr", "nemotron_asr_streaming",
    "nomic_bert", "parakeet_rnnt", "parakeet_tdt", "pocket_tts", "qwen3_asr", "step3p5", "unispeech-sat", "vibevoice",
)  # fmt: skip
"""Model types whose configurations need special ids that others may leave out."""

LEARNED_AFTER_PADDING: Mapping[str, int] = {
    **dict.fromkeys((
        "altclip_text_model", "bridgetower_text_model", "camembert", "clap_text_model", "data2vec-text", "esm",
        "ibert", "layoutlmv3", "lilt", "longformer", "luke", "roberta", "roberta-prelayernorm",
        "xlm-roberta", "xlm-roberta-xl", "xmod",
    ), 1),
    **dict.fromkeys(("markuplm", "prophetnet", "xlm-prophetnet"), 0),
}  # fmt: skip
"""Model types whose learned table has position 0 in row pad_token_id + 1 -> pad_token_id where the key is absent."""

FIXED_AFTER_PADDING: Mapping[str, int] = {
    **dict.fromkeys((
        "fsmt", "kosmos_2_text_model", "kosmos_2_5_text_model", "m2m_100", "mpnet", "nllb-moe",
        "speech_to_text", "speecht5", "trocr",
    ), 1),
    **dict.fromkeys(("seamless_m4t", "seamless_m4t_v2"), 0),
}  # fmt: skip
"""The same for sinusoids, which have no table to shift, and for MPNet, where 1 is part of the code."""

FIXED_BEFORE_TWO: Mapping[str, int] = {"xglm": 1}
"""Model types whose positions start at 2 and whose sinusoid is zero at pad_token_id, which must stay below 2."""


def shares_vocabulary(name: object, part: Mapping[Any, Any], rows: int | None) -> bool:
    """Return whether a nested configuration can refer to the same token table; None rows are any number."""
    if not isinstance(name, str) or any(other in name.lower() for other in _OTHER_MODALITIES):
        return False
    size = part.get("vocab_size")
    return rows is None or size is None or size == rows


def nested_configs(config: Mapping[Any, Any], rows: int | None = None) -> Iterator[Mapping[Any, Any]]:
    """Yield a configuration, then those in it that share its vocabulary: none with a vocab_size other than `rows`."""
    yield config
    for key, value in config.items():
        if isinstance(value, Mapping) and not _is_id_key(key) and shares_vocabulary(key, value, rows):
            yield from nested_configs(value, rows)


def _is_id_key(key: object) -> bool:
    if not isinstance(key, str) or any(other in key for other in _OTHER_VOCABULARIES):
        return False
    named = key in (*_NAMES, *_SEQUENCES, "forced_decoder_ids", "sequence_bias")
    return named or key.endswith((*_ENDS, *_MAPS))


def token_ids(config: Mapping[str, Any], rows: int, outside: bool = False) -> dict[str, list[int]]:
    """Return the ids below `rows` that a configuration names, by key; or those `outside`, but for -1, which is none."""

    def matches(number: int) -> bool:
        return not -1 <= number < rows if outside else 0 <= number < rows

    ids_of: dict[str, list[int]] = {}
    for part in nested_configs(config, rows):
        for key, value in part.items():
            ids: list[int] = []
            if _is_id_key(key):
                _mapped(key, value, lambda n, ids=ids: ids.append(n) if matches(n) else None)  # type: ignore[misc]
            if ids:
                ids_of.setdefault(key, []).extend(ids)
    return ids_of


def renumbered(config: Mapping[Any, Any], rows: int, new_id: Callable[[int], int | None]) -> dict[Any, Any]:
    """Return a configuration with new token ids; ids that are not rows of the table stay.

    `new_id` maps an old id to the new one, or None: a single id becomes null then; in a list or map it is removed, and
    a sequence of ids with it.
    """

    def inside(number: int) -> int | None:
        return new_id(number) if 0 <= number < rows else number

    changed = dict(config)
    for key, value in config.items():
        if _is_id_key(key):
            changed[key] = _mapped(key, value, inside)
        elif isinstance(value, Mapping) and shares_vocabulary(key, value, rows):
            changed[key] = renumbered(value, rows, new_id)
    return changed


def lost_id(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> tuple[str, int] | None:
    """Return a key that became null where the model type needs an id, and its old id; None if there is none."""
    for old, new in zip(nested_configs(before), nested_configs(after), strict=True):
        for key, value in old.items():
            is_lost = _is_id_key(key) and isinstance(value, int) and new[key] is None
            if is_lost and (key not in _MAY_BE_NULL or old.get("model_type") in _ALL_NEEDED):
                return key, value
    return None


def _mapped(key: str, value: Any, new_id: Callable[[int], int | None]) -> Any:
    """Return the value of a key with a function applied to each id in it."""
    if key == "forced_decoder_ids" and _is_pairs(value):  # position and id
        new = [[at, number if number is None else new_id(number)] for at, number in value]
        return [pair for pair, (_, number) in zip(new, value, strict=True) if number is None or pair[1] is not None]
    if key == "sequence_bias" and _is_pairs(value):
        biases = [[_sequence(ids, new_id), bias] for ids, bias in value]
        return [pair for pair in biases if pair[0] is not None]
    if isinstance(value, Mapping):
        named = {name: _one(number, new_id) for name, number in value.items()}
        return {name: number for name, number in named.items() if number is not None or value[name] is None}
    if key in _SEQUENCES and isinstance(value, list):
        sequences = [_sequence(one, new_id) for one in value]
        return [one for one in sequences if one is not None]
    if isinstance(value, list):
        return [new for one in value if (new := _one(one, new_id)) is not None]
    return _one(value, new_id)


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, list) and len(one) == 2 for one in value)


def _sequence(value: Any, new_id: Callable[[int], int | None]) -> Any:
    """Map the ids of a sequence, or of nested alternatives; None where an id is lost."""
    if not isinstance(value, list):
        return _one(value, new_id)
    new = [_sequence(one, new_id) for one in value]
    if any(isinstance(one, list) for one in value):
        return [one for one in new if one is not None] or None
    return None if None in new else new


def _one(value: Any, new_id: Callable[[int], int | None]) -> Any:
    return new_id(value) if isinstance(value, int) and not isinstance(value, bool) else value


def padding_dependence(config: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return how positions depend on the padding id (`learned`, `fixed`, `below two`), and that id; None if not."""
    kinds = (("learned", LEARNED_AFTER_PADDING), ("fixed", FIXED_AFTER_PADDING), ("below two", FIXED_BEFORE_TWO))
    for part in nested_configs(config):
        model_type = part.get("model_type")
        if not isinstance(model_type, str) or (
            model_type == "trocr" and part.get("use_learned_position_embeddings", True)
        ):
            continue
        for kind, types in kinds:
            padding = part.get("pad_token_id", types[model_type]) if model_type in types else None
            padding = 1 if model_type == "mpnet" and model_type in types else padding
            if isinstance(padding, int) and padding >= 0:
                return kind, padding
    return None


def padding_shift(dependence: tuple[str, int], new: int | None) -> int:
    """Return the rows by which positions shift with the padding token; TokenError if it is lost, or they cannot."""
    kind, old = dependence
    if new == old or (kind == "below two" and (new is None or new < 2)):
        return 0
    if new is None:
        raise TokenError(
            f"pad_token_id={old} would lose its row, but positions of this model are counted from it.\nKeep that id."
        )
    if kind != "learned":
        raise TokenError(
            f"pad_token_id would become {new} instead of {old}, but positions of this model are counted from it, and "
            f"have no table that could be shifted.\nPass ids with {old} at index {old}, or a tokenizer whose padding "
            f"has the id {old}."
        )
    return new - old


_HASHED = re.compile(
    r"(^|[._])((ngram|n_gram|hash)[a-z_]*embed|engram|hashbucket|multi_head_embedding\.embedding)", re.IGNORECASE
)
"""Names of tables that a hash of token ids selects: all that models/checkpoint/names finds, and others."""


def has_two_vocabularies(config: Mapping[str, Any]) -> bool:
    """Return whether a model has a vocabulary for its encoder and another for its decoder."""
    own = config.get("share_encoder_decoder_embeddings") is False
    return own or config.get("model_type") in ("encoder-decoder", "fsmt")


def why_fixed(config: Mapping[str, Any], tensors: Iterable[str], renumbering: bool) -> str | None:
    """Return why a vocabulary, or the ids in it (`renumbering`), cannot be changed, and the way out; None if it can."""
    model_type = str(config.get("model_type"))
    hashed = next((name for name in tensors if _HASHED.search(name)), None)
    if hashed is not None and "prophetnet" not in model_type:  # its n-grams are a few streams, without a hash
        return (
            f"{hashed} is looked up by a hash of token ids: with other ids, or another vocab_size, the model would "
            "read other rows.\nSuch a vocabulary cannot be changed."
        )
    if has_two_vocabularies(config):
        return (
            f"this {model_type} has a vocabulary for its encoder and another for its decoder, so that an id does not "
            "say which token is meant.\nModels with one vocabulary can be changed."
        )
    if any(isinstance(value, Mapping) and "vocab_offset" in value for value in config.values()):
        return (
            f"in this {model_type}, ids from vocab_offset on are images and sound, and must keep their ids.\n"
            "The text model alone can be changed."
        )
    if renumbering and any("t2u_vocab_size" in part for part in nested_configs(config)):
        return (
            f"generation_config.json of this {model_type} maps its ids to characters and sounds, so its tokens "
            "cannot be renumbered.\nRows can be added: resize."
        )
    return None
