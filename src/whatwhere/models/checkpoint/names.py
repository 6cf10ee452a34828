"""Names of the tensors of the input layer, by suffix or else by number of rows; and whether they are tied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whatwhere.models.registry import nested_text

TOKENS = (
    "shared.weight", "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight",
    "tok_embeddings.weight", "token_embd.weight", "token_embedding.weight", "tokens_embed.weight",
    "word_embedding.weight", "tokens.weight", "transformer.w.weight", "embed_tokens", "embeddings.weight",
    "embedding.weight", "embeddings", "vectors",
)  # fmt: skip
"""Suffixes of token tables, the most certain first: T5 and BART have `shared` and copies of it."""

POSITIONS = (
    "position_embeddings.weight", "wpe.weight", "embed_positions.weight", "position_embd.weight",
    "position_embedding.weight", "positions_embed.weight", "where.input.weight", "positional_embedding",
    "decoder.pos_emb.weight", "position_embedding.pos_enc",
)  # fmt: skip

SEGMENTS = ("token_type_embeddings.weight", "token_types.weight")

OUTPUT_PROJECTIONS = (
    "lm_head.weight", "embed_out.weight", "predictions.decoder.weight", "lm_head.decoder.weight", "head.decoder.weight",
    "proj_out.weight", "vocab_projector.weight", "generator_lm_head.weight", "lm_loss.weight", "pred_layer.proj.weight",
    "output_projection.weight",
)  # fmt: skip
WHOLE_OUTPUT_PROJECTIONS = ("output.weight", "decoder.weight", "head.weight")
"""Names that mean the output projection only without a prefix: a layer may have an `output.weight` of its own."""

OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech", "video", "patch")
"""Parts of names of tables that are not for text."""

_MAX_PADDING = 1024
_WITH_HEAD = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining")


@dataclass(frozen=True)
class Names:
    """The names of the tensors of the input layer and of the output projection; None if there is no such tensor.

    Args:
        token_table: one row for each token.
        output_projection: maps hidden states to logits (`lm_head`, unembedding), if it is stored separately.
        position_table: learned positions.
        segment_table: learned segments (token types).
        guessed: whether the token table was identified by its number of rows rather than its name.
    """

    token_table: str | None = None
    output_projection: str | None = None
    position_table: str | None = None
    segment_table: str | None = None
    guessed: bool = False


def find_names(
    shapes: Mapping[str, Sequence[int]], num_tokens: int | None = None, token_table: str | None = None
) -> Names:
    """Find the tables of the input layer by their names, given the shape of each tensor.

    If no name is known, the token table is the matrix with as many rows as there are tokens, or the fewest more:
    vocabularies are padded. If the number of tokens is not known either, it is the only matrix, if there is one. Where
    the format determines the table, as "run/name" in results of several runs, the others are those of the same run.

    Examples:
        >>> find_names({"a.wte.weight": (50304, 8), "a.wpe.weight": (64, 8)}, num_tokens=50257).position_table
        'a.wpe.weight'
        >>> find_names({"up": (64, 16), "table": (40, 16)}, num_tokens=37).token_table
        'table'
    """
    tables = {name: tuple(shape) for name, shape in shapes.items() if len(shape) == 2}
    tokens = token_table or _by_suffix(tables, TOKENS)
    guessed = tokens is None
    if tokens is None:
        tokens = _by_rows(tables, num_tokens)
    if tokens is None:
        return Names(None, None, _by_suffix(tables, POSITIONS), _by_suffix(tables, SEGMENTS))
    # If a file holds several models, the tables of one model have the same prefix.
    prefix = token_table[: token_table.rfind("/") + 1] if token_table else ""
    others = {name: shape for name, shape in tables.items() if name != tokens and name.startswith(prefix)}
    rows = tables[tokens][0]
    same_rows = {name: shape for name, shape in others.items() if shape[0] == rows}
    output = _by_suffix(same_rows, OUTPUT_PROJECTIONS)
    output = output or next((name for name in WHOLE_OUTPUT_PROJECTIONS if name in same_rows), None)
    # Tokens that are read and never written, as Mllama's pictures, have no row of the output projection.
    fewer = {name: shape for name, shape in others.items() if 0 < rows - shape[0] <= _MAX_PADDING}
    output = output or _by_suffix(fewer, OUTPUT_PROJECTIONS[:1])
    return Names(tokens, output, _by_suffix(others, POSITIONS), _by_suffix(others, SEGMENTS), guessed)


def stated_as_tied(config: Mapping[str, object] | None, format: str) -> bool | None:
    """Return whether a model without a stored output projection is tied to the token table; None if unknown.

    It is tied if its configuration states so, or omits the key and names a class with a language-model head. A GGUF
    file without an output projection is always tied.

    Examples:
        >>> stated_as_tied({"tie_word_embeddings": True}, "folder")
        True
        >>> stated_as_tied({"architectures": ["BertModel"]}, "folder") is None
        True
    """
    if format == "gguf":
        return True
    config = config or {}
    stated = stated_tie(config)
    return (stated or None) if stated is not None else has_head(config) or None


def stated_tie(config: Mapping[str, object]) -> bool | None:
    """Return tie_word_embeddings of a configuration, or of its part for text; None where it is not stated."""
    stated = config.get("tie_word_embeddings")
    stated = nested_text(config)[1].get("tie_word_embeddings") if stated is None else stated
    return stated if isinstance(stated, bool) else None


def has_head(config: Mapping[str, object]) -> bool:
    """Return whether the class that a configuration names has a language-model head."""
    classes = config.get("architectures")
    names = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    return any(name.endswith(_WITH_HEAD) for name in names)


def _by_suffix(tables: Mapping[str, Sequence[int]], suffixes: Sequence[str]) -> str | None:
    """Return the name with the first suffix that occurs; of several that of the decoder, then the least nested."""
    for suffix in suffixes:
        names = [name for name in tables if name == suffix or name.endswith((f".{suffix}", f"/{suffix}"))]
        names = [name for name in names if not any(part in name.lower() for part in OTHER_MODALITIES)]
        if names:
            return min(names, key=lambda name: ("decoder" not in name and "encoder" in name, name.count(".")))
    return None


def _by_rows(tables: Mapping[str, Sequence[int]], num_tokens: int | None) -> str | None:
    if num_tokens is None:
        return next(iter(tables)) if len(tables) == 1 else None
    padding = {name: shape[0] - num_tokens for name, shape in tables.items()}
    possible = {name: rows for name, rows in padding.items() if 0 <= rows <= _MAX_PADDING}
    return min(possible, key=lambda name: possible[name]) if possible else None
