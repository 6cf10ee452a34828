"""Which tensor is the token table: by a table of names, else by the number of its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TOKENS = (
    "shared.weight", "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight",
    "tok_embeddings.weight", "token_embd.weight", "token_embedding.weight", "tokens_embed.weight",
    "word_embedding.weight", "tokens.weight", "transformer.w.weight", "embed_tokens", "embeddings.weight",
    "embedding.weight", "embeddings", "vectors",
)  # fmt: skip
"""Ends of names, the surest first: T5 and BART have `shared` and copies of it, Llama and most others `embed_tokens`."""

POSITIONS = (
    "position_embeddings.weight", "wpe.weight", "embed_positions.weight", "position_embd.weight",
    "position_embedding.weight", "positions_embed.weight", "where.input.weight", "positional_embedding",
)  # fmt: skip

SEGMENTS = ("token_type_embeddings.weight", "token_types.weight")

READOUTS = (
    "lm_head.weight", "embed_out.weight", "predictions.decoder.weight", "lm_head.decoder.weight", "proj_out.weight",
    "vocab_projector.weight", "generator_lm_head.weight", "lm_loss.weight", "pred_layer.proj.weight",
    "output_projection.weight",
)  # fmt: skip
WHOLE_READOUTS = ("output.weight", "decoder.weight", "head.weight")
"""Names that mean this only where nothing stands before them."""

ELSEWHERE = ("vision", "visual", "image", "audio", "speech", "video", "patch")
"""Parts of names of tables that are not for text."""

_MOST_PADDING = 1024


@dataclass(frozen=True)
class Names:
    """Name the tables of the input layer, or None.

    Args:
        token_table: one row for each token.
        readout: what logits are read out with, where it is stored.
        position_table: learned positions.
        segment_table: learned kinds of sentence.
        guessed: whether the token table was found by its rows rather than by its name.
    """

    token_table: str | None = None
    readout: str | None = None
    position_table: str | None = None
    segment_table: str | None = None
    guessed: bool = False


def find_names(shapes: Mapping[str, Sequence[int]], words: int | None = None, token_table: str | None = None) -> Names:
    """Find the tables of the input layer.

    Where no name is known, the token table is the tensor of two dimensions whose rows are as many as the tokens, or
    the fewest above: vocabularies are padded. With one such tensor in all and no tokens, it is that one.

    Args:
        shapes: by name.
        words: how many tokens there are, if it is known.
        token_table: its name, where the format itself says so.

    >>> find_names({"a.wte.weight": (50304, 8), "a.wpe.weight": (64, 8)}, words=50257).position_table
    'a.wpe.weight'
    >>> find_names({"up": (64, 16), "table": (40, 16)}, words=37)
    Names(token_table='table', readout=None, position_table=None, segment_table=None, guessed=True)
    """
    tables = {name: tuple(shape) for name, shape in shapes.items() if len(shape) == 2}
    tokens = token_table or _ending(tables, TOKENS)
    guessed = tokens is None
    if tokens is None:
        tokens = _by_rows(tables, words)
    if tokens is None:
        return Names(None, None, _ending(tables, POSITIONS), _ending(tables, SEGMENTS))
    beside = {name: shape for name, shape in tables.items() if name != tokens}
    heads = {name: shape for name, shape in beside.items() if shape[0] == tables[tokens][0]}
    readout = _ending(heads, READOUTS) or next((name for name in WHOLE_READOUTS if name in heads), None)
    return Names(tokens, readout, _ending(beside, POSITIONS), _ending(beside, SEGMENTS), guessed)


def _ending(tables: Mapping[str, Sequence[int]], ends: Sequence[str]) -> str | None:
    """Give the name with the first of some ends; of several the decoder's, then the one least deep."""
    for end in ends:
        found = [name for name in tables if name == end or name.endswith((f".{end}", f"/{end}"))]
        found = [name for name in found if not any(part in name.lower() for part in ELSEWHERE)]
        if found:
            return min(found, key=lambda name: ("decoder" not in name and "encoder" in name, name.count(".")))
    return None


def _by_rows(tables: Mapping[str, Sequence[int]], words: int | None) -> str | None:
    if words is None:
        return next(iter(tables)) if len(tables) == 1 else None
    near = {name: shape[0] - words for name, shape in tables.items() if 0 <= shape[0] - words <= _MOST_PADDING}
    return min(near, key=lambda name: near[name]) if near else None
