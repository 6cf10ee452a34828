"""Tables of the input layer by the names of tensors, or by their rows: which there are, and whether two are tied."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.configuration.model_types import nested_text

_CERTAIN = (
    "shared.weight", "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight",
    "tok_embeddings.weight", "token_embd.weight", "token_embedding.weight", "tokens_embed.weight",
    "word_embedding.weight", "tokens.weight", "transformer.w.weight",
)  # fmt: skip
TOKENS = (*_CERTAIN, "embed_tokens", "embeddings.weight", "embedding.weight", "embeddings", "vectors")
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

_OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech", "video", "patch", "protein")

QUERIES = ("q_proj", "wq", "attn_q", "query_proj", "to_q", "query", "q")
KEYS = ("k_proj", "wk", "attn_k", "key_proj", "to_k", "key", "k")
"""Modules whose output features are queries or keys; those of several in one tensor have other names."""

_MAX_PADDING = 1024
_WITH_HEAD = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining")


@dataclass(frozen=True)
class Names:
    """The names of the tensors of the input layer and of the output projection; None if there is no such tensor."""

    token_table: str | None = None
    output_projection: str | None = None
    position_table: str | None = None
    segment_table: str | None = None
    encoder_positions: str | None = None  # the position table of the encoder, where the other is the decoder's
    guessed: bool = False  # the token table was identified by its number of rows rather than its name
    others: tuple[str, ...] = ()  # token tables of other models in the file
    models: tuple[str, ...] = ()  # prefixes of the names of these models; the first is that of the token table
    has_output: bool = True  # whether logits are of its vocabulary, not of that of a decoder beside it
    undecided: bool = False  # whether no name shows which of these models is meant, and the first was taken

    def is_of_model(self, name: str) -> bool:
        """Return whether a tensor is of the model of the token table, or of several."""
        return not name.startswith(tuple(f"{prefix}." for prefix in self.models[1:]))


def find_names(
    shapes: Mapping[str, Sequence[int]], num_tokens: int | None = None, token_table: str | None = None, module: str = ""
) -> Names:
    """Find the tables of the input layer of one model by their names, given the shape of each tensor.

    If no name is known, the token table is the matrix with as many rows as there are tokens, or the fewest more:
    vocabularies are padded. If the number of tokens is not known either, it is the only matrix, if there is one. Of
    several models the one in `module` is taken, else a decoder, else the least nested, and no table of another. Where
    the format determines the table, as "run/name" in results of several runs, the others are those of the same run.
    """
    tables = {name: tuple(shape) for name, shape in shapes.items() if len(shape) == 2}
    known = sorted(_by_suffix(tables, _CERTAIN), key=is_encoder) or _by_suffix(tables, TOKENS)
    tokens = token_table or next(iter([name for name in known if is_inside(name, module)] or known), None)
    guessed = tokens is None
    if tokens is None:
        tokens = _by_rows(tables, num_tokens)
    if tokens is None:
        return Names(None, None, _first(tables, POSITIONS), _first(tables, SEGMENTS))
    prefix = token_table[: token_table.rfind("/") + 1] if token_table else ""
    # A table below the same module, as in the encoder of T5 or a layer for drafting, is a copy.
    of_others = tuple(name for name in known if not prefix and _around(name)[: len(_around(tokens))] != _around(tokens))
    models = (_prefix(each, (tokens, *of_others)) for each in (tokens, *of_others)) if of_others else ()
    undecided = any(_are_alike(name, tokens) for name in of_others if is_inside(name, module))
    found = Names(tokens, guessed=guessed, others=of_others, models=tuple(dict.fromkeys(models)), undecided=undecided)
    others = {name: shape for name, shape in tables.items() if name != tokens and name.startswith(prefix)}
    others = {name: shape for name, shape in others.items() if found.is_of_model(name)}
    rows, has_output = tables[tokens][0], not is_encoder(tokens) or all(map(is_encoder, of_others))
    same_rows = {name: shape for name, shape in others.items() if shape[0] == rows}
    output = _first(same_rows, OUTPUT_PROJECTIONS)
    output = output or next((name for name in WHOLE_OUTPUT_PROJECTIONS if name in same_rows), None)
    # Tokens that are read and never written, as Mllama's pictures, have no row of the output projection.
    fewer = {name: shape for name, shape in others.items() if 0 < rows - shape[0] <= _MAX_PADDING}
    output = output or _first(fewer, OUTPUT_PROJECTIONS[:1])
    positions = _first(others, POSITIONS)
    encoder = (positions or "").replace("decoder", "encoder")
    return replace(
        found, output_projection=output if has_output else None, position_table=positions, has_output=has_output,
        segment_table=_first(others, SEGMENTS),
        encoder_positions=encoder if encoder != positions and encoder in tables else None,
    )  # fmt: skip


def is_inside(name: str, module: str) -> bool:
    """Return whether a tensor is in a module, such as `thinker`; each is in ""."""
    return not module or f".{module}." in f".{name}"


def is_encoder(name: str) -> bool:
    """Return whether a tensor is of an encoder, by its name."""
    return "decoder" not in name and "encoder" in name


def _around(table: str) -> list[str]:
    return table.removesuffix(".weight").split(".")[:-1]


def _shared(one: str, other: str) -> int:
    """Return the number of modules that the names of two tables begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(_around(one), _around(other), strict=False)))


def _prefix(name: str, tables: Sequence[str]) -> str:
    """Return the modules that a table's model begins with, and no model of another table."""
    return ".".join(_around(name)[: max(_shared(name, other) for other in tables if other != name) + 1])


def _are_alike(one: str, other: str) -> bool:
    """Return whether names differ by one module alone, as those of `ema` and `model`, and wrappers of parallel code."""
    n, wrappers = _shared(one, other) + 1, ("module", "_orig_mod")
    ends = ([part for part in name.split(".")[n:] if part not in wrappers] for name in (one, other))
    return next(ends) == next(ends) and is_encoder(one) == is_encoder(other) and "mtp" not in one


def is_other_modality(name: str) -> bool:
    """Return whether a tensor is for images, sound, video or proteins rather than text, by its name."""
    return any(part in name.lower() for part in _OTHER_MODALITIES)


def layer_of(name: str, unknown: int) -> tuple[int, str, str]:
    """Return the number of the layer in the name of a tensor, else `unknown`, its module and its parameter."""
    *before, module, parameter = ("", *name.split("."))
    return next((int(part) for part in before if part.isdecimal() and len(part) < 6), unknown), module, parameter


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


def _by_suffix(tables: Mapping[str, Sequence[int]], suffixes: Sequence[str]) -> list[str]:
    """Return the names with a suffix: by the order of these, then those of a decoder, then the least nested."""
    found = {}
    for name in (name for name in tables if not is_other_modality(name)):
        ends = (n for n, suffix in enumerate(suffixes) if f".{name}".replace("/", ".").endswith(f".{suffix}"))
        if (end := next(ends, None)) is not None:
            found[name] = end, is_encoder(name), name.count(".")
    return sorted(found, key=lambda name: found[name])


def _first(tables: Mapping[str, Sequence[int]], suffixes: Sequence[str]) -> str | None:
    return next(iter(_by_suffix(tables, suffixes)), None)


def _by_rows(tables: Mapping[str, Sequence[int]], num_tokens: int | None) -> str | None:
    if num_tokens is None:
        return next(iter(tables)) if len(tables) == 1 else None
    padding = {name: shape[0] - num_tokens for name, shape in tables.items()}
    possible = {name: rows for name, rows in padding.items() if 0 <= rows <= _MAX_PADDING}
    return min(possible, key=lambda name: possible[name]) if possible else None


# Tables that token ids select beside the token table

Kind = Literal["per layer", "factorized", "values", "hashed n-grams"]
Tables = Mapping[str, Entry]

_FACTORS: Mapping[str, str] = {
    "embedding_hidden_mapping_in": "positions, token types and a norm",  # ALBERT, RemBERT
    "embeddings_project": "positions, token types and a norm",  # ELECTRA, ConvBERT, RoFormer
    "embeddings.embed_proj": "positions and token types",  # DeBERTa
    "embed_tokens.embedding_projection": "",  # NeoMME
    "decoder.project_in": "",  # OPT 350M
}
"""Names of the second factor, each with what is added or computed between the two."""

_FORMS: tuple[tuple[str, Kind, str, tuple[tuple[str, str], ...]], ...] = (
    ("gemma", "per layer", r"(?:embed_tokens_per_layer|per_layer_token_embd)\.weight",
     (("projection", "per_layer_model_projection.weight"), ("norm", "per_layer_projection_norm.weight"),
      ("projection", "per_layer_model_proj.weight"), ("norm", "per_layer_proj_norm.weight"))),  # of GGUF
    ("neomme", "values", r"value_embeddings(?:\.weight)?", ()),
    ("nanogpt", "values", r"value_embeds(?:\.(\d+))?(?:\.weight)?", ()),
    ("qwen4_exp", "hashed n-grams", r"ngram_embedding\.(?:shard_(\d+)\.)?weight",
     (("multipliers", "layer_multipliers"), ("table_rows", "ngram_heads_vocab_sizes"),
      ("offsets", "ngram_heads_offsets"))),
    ("longcat", "hashed n-grams", r"ngram_embeddings\.embedders\.(\d+)\.weight",
     (("projection {0}", "ngram_embeddings.post_projs.{0}.weight"),)),
    ("blt", "hashed n-grams", r"encoder_hash_tok_embedding\.weight", ()),
    ("engram", "hashed n-grams", r"multi_head_embedding\.embedding\.weight",
     (("offsets", "multi_head_embedding.offsets"),)),
)  # fmt: skip
"""Form and kind of a table, its name behind a prefix, with the number of a part, and what belongs to it."""
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|blocks|h)\.(\d+)\.")


@dataclass(frozen=True)
class TokenTable:
    """A table that token ids select, beside the token table or as a factor of it, as the headers describe it."""

    name: str  # of its first tensor
    kind: Kind  # a vector for each layer, a narrow table and a projection, values of attention, or hashed n-grams
    form: str  # whose names: "gemma", "factors", "neomme", "nanogpt", "qwen4_exp", "blt", "engram" or "longcat"
    tensors: tuple[str, ...]  # of its rows, in their order; one, unless the table is stored in parts
    others: Mapping[str, str]  # other tensors that belong to it, by what they are, such as `projection`
    rows: int  # of all parts together
    features: int
    parameters: int  # of the table alone, without the others
    bytes: int  # likewise; 0 in a text file
    dtype: str  # the stored type, or several
    layer: int | None = None  # counted from 0; None where the name does not say one
    between: str = ""  # what comes between the factors


def find_token_tables(tensors: Tables, token_table: str | None) -> tuple[TokenTable, ...]:
    """Find the tables of a checkpoint that token ids select, other than its plain token table."""
    matrices = {name: entry for name, entry in tensors.items() if len(entry.shape) == 2 and not is_other_modality(name)}
    found = _factorized(tensors, matrices, token_table)
    for form, kind, pattern, others in _FORMS:
        tables: dict[str, list[tuple[int, Entry]]] = {}
        for name, entry in matrices.items():
            if (match := re.fullmatch(rf"(.*\.|)(?:{pattern})", name)) is not None:
                number = int(match[2] or 0) if match.re.groups > 1 else 0
                # The parts of a table have one prefix; of values each layer has a table of its own.
                tables.setdefault(name if kind == "values" else match[1], []).append((number, entry))
        for prefix, numbered in tables.items():
            parts = sorted(numbered, key=lambda part: part[0])
            beside = {
                role.format(number): each
                for number, _ in parts
                for role, end in others
                if (each := prefix + end.format(number)) in tensors
            }
            found.append(_table(kind, form, [entry for _, entry in parts], beside))
    return tuple(_with_gate(table, tensors) if table.form == "nanogpt" else table for table in found)


def is_per_layer(name: str) -> bool:
    """Return whether a tensor is a table of token vectors for each layer (Gemma 3n and 4)."""
    return re.fullmatch(rf"(?:.*\.|){_FORMS[0][2]}", name) is not None


def _table(kind: Kind, form: str, parts: list[Entry], others: Mapping[str, str], between: str = "") -> TokenTable:
    layer = _LAYER.search(parts[0].name)
    return TokenTable(
        name=parts[0].name, kind=kind, form=form, tensors=tuple(entry.name for entry in parts), others=others,
        rows=sum(entry.shape[0] for entry in parts), features=parts[0].shape[1],
        parameters=sum(entry.shape[0] * entry.shape[1] for entry in parts), bytes=sum(entry.bytes for entry in parts),
        dtype=", ".join(sorted({entry.dtype for entry in parts})), layer=None if layer is None else int(layer[1]),
        between=between,
    )  # fmt: skip


def _factorized(tensors: Tables, matrices: Tables, token_table: str | None) -> list[TokenTable]:
    """Return the token table with its projection; of several models in a file, that with the longest common prefix."""
    if token_table is None or token_table not in matrices:
        return []
    table = matrices[token_table]
    found = [
        (len([*takewhile(lambda pair: pair[0] == pair[1], zip(name, token_table, strict=False))]), name, between)
        for name, entry in matrices.items()
        for suffix, between in _FACTORS.items()
        if name == f"{suffix}.weight" or name.endswith(f".{suffix}.weight")
        if entry.shape[1] == table.shape[1]
    ]
    if not found:
        return []
    _, name, between = max(found, key=lambda each: each[0])
    bias = f"{name.removesuffix('.weight')}.bias"
    others = {"projection": name} | ({"bias": bias} if bias in tensors else {})
    return [_table("factorized", "factors", [table], others, between)]


def _with_gate(table: TokenTable, tensors: Tables) -> TokenTable:
    """Return a table of values with its gate: nanochat numbers its tables by layer, modded-nanogpt does not."""
    number = re.search(r"\d+", table.name.rpartition("value_embeds")[2])
    gate = f"h.{number[0] if number else None}.attn.ve_gate.weight"
    gates = [each for each in tensors if each == gate or each.endswith(f".{gate}")]
    return replace(table, others={"gate": gates[0]}, layer=int(number[0])) if number and gates else table
