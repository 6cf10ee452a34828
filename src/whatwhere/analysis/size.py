"""How many parameters the input layer of a model has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError
from whatwhere.layer import InputLayer
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.binding import Where


@dataclass(frozen=True)
class InputParameters:
    """Count the parameters of an input layer by what they are for.

    Args:
        tokens: the token table, vocab_size x dim.
        positions: learned positions.
        segments: learned sentence types (BERT).
        readout: a readout of its own; 0 where it shares the token table.
    """

    tokens: int
    positions: int = 0
    segments: int = 0
    readout: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.tokens + self.positions + self.segments + self.readout


@dataclass(frozen=True)
class _Family:
    """What the configurations of one model family leave unsaid."""

    tied: bool
    rows: str | None = None
    offset: int = 0


_FAMILIES: Mapping[str, _Family] = {
    "bert": _Family(tied=True, rows="max_position_embeddings"),
    "bloom": _Family(tied=True),
    "deepseek_v3": _Family(tied=False),
    "gpt2": _Family(tied=True, rows="n_positions"),
    "gpt_neox": _Family(tied=False),
    "llama": _Family(tied=False),
    "mistral": _Family(tied=False),
    "mpt": _Family(tied=True),
    "opt": _Family(tied=True, rows="max_position_embeddings", offset=2),  # positions start at row 2
    "qwen2": _Family(tied=False),
    "roberta": _Family(tied=True, rows="max_position_embeddings"),  # its 514 rows count the offset already
}
_DIM = ("hidden_size", "n_embd", "d_model", "dim")


def parameters(config_or_layer: Mapping[str, Any] | nn.Module | object) -> InputParameters:
    """Count the parameters of an input layer, of a built one or from a configuration.

    Args:
        config_or_layer: an InputLayer, TokenEmbedding or Where; or a Hugging Face configuration (object or dict, with
            its `model_type`); or a dict in our words: vocab_size, dim, and where they exist max_length (rows of
            learned positions), segments, tied (False: the readout has a table of its own).

    A rotary or ALiBi model has no positional parameters, whatever its `max_position_embeddings` says.

    >>> gpt2 = parameters({"vocab_size": 50_257, "dim": 768, "max_length": 1024})
    >>> gpt2.tokens, gpt2.positions, gpt2.total
    (38597376, 786432, 39383808)
    >>> llama = {"model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "tie_word_embeddings": False}
    >>> parameters(llama)
    InputParameters(tokens=525336576, positions=0, segments=0, readout=525336576)
    """
    if isinstance(config_or_layer, nn.Module):
        return _count(config_or_layer)
    if isinstance(config_or_layer, Mapping):
        config: Mapping[str, Any] = config_or_layer
    elif hasattr(config_or_layer, "to_dict"):
        config = config_or_layer.to_dict()
    else:
        raise SettingError(
            f"parameters() got {type(config_or_layer).__name__}, but takes a layer, a configuration or a dict such as "
            '{"vocab_size": 50_257, "dim": 768, "max_length": 1024}.'
        )
    return _from_huggingface(config) if "model_type" in config else _from_words(config)


def _count(layer: nn.Module) -> InputParameters:
    def size(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    if isinstance(layer, InputLayer):
        return InputParameters(tokens=size(layer.tokens), positions=size(layer.where))
    if isinstance(layer, TokenEmbedding):
        return InputParameters(tokens=size(layer))
    if isinstance(layer, Where):
        return InputParameters(tokens=0, positions=size(layer))
    raise SettingError(
        f"parameters() counts an InputLayer, a TokenEmbedding or a Where, but got {type(layer).__name__}.\n"
        "Pass the part of your model that is its input layer."
    )


def _from_words(config: Mapping[str, Any]) -> InputParameters:
    known = {"vocab_size", "dim", "max_length", "segments", "tied"}
    unknown = sorted(set(config) - known)
    if unknown:
        raise SettingError(
            f"parameters() does not know {', '.join(map(repr, unknown))}; it knows {', '.join(sorted(known))}.\n"
            "For a Hugging Face configuration keep its 'model_type'."
        )
    sizes = {"vocab_size": config.get("vocab_size", 0), "dim": config.get("dim", 0)}
    require_whole("parameters", **sizes)
    table = sizes["vocab_size"] * sizes["dim"]
    readout = 0 if config.get("tied", True) else table
    return InputParameters(
        table, config.get("max_length", 0) * sizes["dim"], config.get("segments", 0) * sizes["dim"], readout
    )


def _from_huggingface(config: Mapping[str, Any]) -> InputParameters:
    family = _FAMILIES.get(config["model_type"])
    if family is None:
        raise SettingError(
            f"parameters() does not know how model_type={config['model_type']!r} says where; it knows "
            f"{', '.join(_FAMILIES)}.\nGive the sizes in our words: vocab_size, dim, max_length, segments, tied."
        )
    words = {"vocab_size": config.get("vocab_size", 0), "dim": next((config[n] for n in _DIM if n in config), 0)}
    rows = 0
    if family.rows is not None:
        require_whole("parameters", **{family.rows: config.get(family.rows, 0)})
        rows = config[family.rows] + family.offset
    tied = config.get("tie_word_embeddings", family.tied)
    return _from_words(words | {"max_length": rows, "segments": config.get("type_vocab_size", 0), "tied": tied})
