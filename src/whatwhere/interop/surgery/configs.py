"""What configurations say of the vocabulary and of lengths, changed with the tables."""

from collections.abc import Iterator, Mapping
from typing import Any

_SIZES = ("vocab_size", "n_words")
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
_NESTED = ("text_config", "decoder", "encoder")
_IDS = ("_token_id", "_token_ids", "_token_index", "suppress_tokens")
_UNREAD = ("bad_words_ids", "force_words_ids", "forced_decoder_ids", "sequence_bias")


def with_vocabulary(config: Mapping[str, Any], old: int, new: int) -> dict[str, Any]:
    """Give a configuration with another number of rows, wherever the old one stands.

    >>> with_vocabulary({"vocab_size": 5, "text_config": {"vocab_size": 5}}, 5, 8)
    {'vocab_size': 8, 'text_config': {'vocab_size': 8}}
    """
    return _with_sizes(config, _SIZES, {old: new})


def with_positions(config: Mapping[str, Any], old: int, new: int, offset: int) -> dict[str, Any]:
    """Give a configuration with another number of positions, which it counts with or without the rows before the first.

    >>> with_positions({"max_position_embeddings": 514}, old=512, new=1024, offset=2)
    {'max_position_embeddings': 1026}
    """
    return _with_sizes(config, _LENGTHS, {old: new, old + offset: new + offset})


def _with_sizes(config: Mapping[str, Any], keys: tuple[str, ...], sizes: Mapping[int, int]) -> dict[str, Any]:
    made = dict(config)
    for key, value in config.items():
        if key in keys and isinstance(value, int) and value in sizes:
            made[key] = sizes[value]
        if key in _NESTED and isinstance(value, Mapping):
            made[key] = _with_sizes(value, keys, sizes)
    return made


def token_ids(config: Mapping[str, Any]) -> Iterator[int]:
    """Give the ids that a configuration names, such as that of padding."""
    for key, value in config.items():
        if key.endswith(_IDS):
            found = value if isinstance(value, list) else [value]
            yield from (one for one in found if isinstance(one, int) and not isinstance(one, bool) and one >= 0)
        if key in _NESTED and isinstance(value, Mapping):
            yield from token_ids(value)


def with_token_ids(config: Mapping[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Give a configuration whose tokens have other ids; an id without a new place becomes null.

    >>> with_token_ids({"pad_token_id": 7, "eos_token_id": [7, 9], "hidden_size": 7}, {7: 0, 9: 1})
    {'pad_token_id': 0, 'eos_token_id': [0, 1], 'hidden_size': 7}
    """

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [found for one in value if (found := moved(one)) is not None]
        return places.get(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else value

    made = dict(config)
    for key, value in config.items():
        if key.endswith(_IDS):
            made[key] = moved(value)
        if key in _NESTED and isinstance(value, Mapping):
            made[key] = with_token_ids(value, places)
    return made


def not_renumbered(config: Mapping[str, Any]) -> list[str]:
    """Give the keys that hold ids in ways of their own."""
    return [key for key in _UNREAD if config.get(key)]
