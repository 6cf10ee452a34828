"""Find tables that token ids select beside the token table, by the names of tensors: what they are, and their sizes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.names import OTHER_MODALITIES

Kind = Literal["per layer", "factorized", "values", "hashed n-grams"]
Tables = Mapping[str, Entry]

_PER_LAYER = (
    ("embed_tokens_per_layer.weight", "per_layer_model_projection.weight", "per_layer_projection_norm.weight"),
    ("per_layer_token_embd.weight", "per_layer_model_proj.weight", "per_layer_proj_norm.weight"),
)
"""Table, projection and norm, in transformers (Gemma 3n and 4) and in GGUF."""

_FACTORS: Mapping[str, str] = {
    "embedding_hidden_mapping_in": "positions, token types and a norm",  # ALBERT, RemBERT
    "embeddings_project": "positions, token types and a norm",  # ELECTRA, ConvBERT, RoFormer
    "embeddings.embed_proj": "positions and token types",  # DeBERTa
    "embed_tokens.embedding_projection": "",  # NeoMME
    "decoder.project_in": "",  # OPT 350M
}
"""Names of the second factor, each with what is added or computed between the two."""

_SHARDED = re.compile(r"^(.*\.|)ngram_embedding\.(?:shard_(\d+)\.)?weight$")
_VALUES = re.compile(r"^(.*\.|)(?:value_embeddings|value_embeds(?:\.(\d+))?)(?:\.weight)?$")
_BLT = re.compile(r"^(.*\.|)encoder_hash_tok_embedding\.weight$")
_ENGRAM = re.compile(r"^(.*\.|)multi_head_embedding\.embedding\.weight$")
_LONGCAT = re.compile(r"^(.*\.|)ngram_embeddings\.embedders\.(\d+)\.weight$")
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|blocks|h)\.(\d+)\.")


@dataclass(frozen=True)
class TokenTable:
    """A table that token ids select, beside the token table or as a factor of it, as the headers describe it.

    Args:
        name: of its first tensor.
        kind: `per layer`, a vector for each layer (Gemma 3n); `factorized`, a narrow token table and a projection
            (ALBERT); `values`, vectors for the values of attention (NeoMME); or `hashed n-grams` (Qwen4-Exp, BLT).
        form: which model's names it has: "gemma", "factors", "neomme", "nanogpt", "qwen4_exp", "blt", "engram",
            "longcat".
        tensors: of its rows, in their order; one, unless the table is stored in parts.
        others: other tensors that belong to it, by what they are, such as `projection`.
        rows, features: of the table; parts together.
        parameters, bytes: of the table alone, without the others; 0 bytes in a text file.
        dtype: the stored types.
        layer: the layer that has it, counted from 0; None where the name does not say one.
        between: what comes between the factors; "" where nothing does.
    """

    name: str
    kind: Kind
    form: str
    tensors: tuple[str, ...]
    others: Mapping[str, str]
    rows: int
    features: int
    parameters: int
    bytes: int
    dtype: str
    layer: int | None = None
    between: str = ""


def find_token_tables(tensors: Tables, token_table: str | None) -> tuple[TokenTable, ...]:
    """Find the tables of a checkpoint that token ids select, other than its plain token table."""
    matrices = {
        name: entry
        for name, entry in tensors.items()
        if len(entry.shape) == 2 and not any(part in name.lower() for part in OTHER_MODALITIES)
    }
    return (
        *_factorized(tensors, matrices, token_table),
        *_per_layer(tensors, matrices),
        *_values(tensors, matrices),
        *_hashed(tensors, matrices),
    )


def is_per_layer(name: str) -> bool:
    """Return whether a tensor is a table of token vectors for each layer (Gemma 3n and 4).

    Examples:
        >>> is_per_layer("model.embed_tokens_per_layer.weight")
        True
    """
    return any(name == table or name.endswith(f".{table}") for table, _, _ in _PER_LAYER)


def _table(kind: Kind, form: str, parts: Iterable[Entry], others: Mapping[str, str], between: str = "") -> TokenTable:
    """Return the table that some tensors make, one below the other."""
    entries = list(parts)
    rows = sum(entry.shape[0] for entry in entries)
    layer = _LAYER.search(entries[0].name)
    return TokenTable(
        name=entries[0].name,
        kind=kind,
        form=form,
        tensors=tuple(entry.name for entry in entries),
        others=dict(others),
        rows=rows,
        features=entries[0].shape[1],
        parameters=sum(entry.shape[0] * entry.shape[1] for entry in entries),
        bytes=sum(entry.bytes for entry in entries),
        dtype=", ".join(sorted({entry.dtype for entry in entries})),
        layer=None if layer is None else int(layer[1]),
        between=between,
    )


def _present(tensors: Tables, names: Mapping[str, str]) -> dict[str, str]:
    return {role: name for role, name in names.items() if name in tensors}


def _per_layer(tensors: Tables, matrices: Tables) -> list[TokenTable]:
    found = []
    for name in filter(is_per_layer, matrices):
        stem, (_, projection, norm) = next(
            (name.removesuffix(each[0]), each) for each in _PER_LAYER if name.endswith(each[0])
        )
        others = _present(tensors, {"projection": stem + projection, "norm": stem + norm})
        found.append(_table("per layer", "gemma", [matrices[name]], others))
    return found


def _factorized(tensors: Tables, matrices: Tables, token_table: str | None) -> list[TokenTable]:
    """Return the token table with its projection; of several models in a file, that with the longest common prefix."""
    if token_table is None or token_table not in matrices:
        return []
    table = matrices[token_table]
    found = [
        (_common(name, token_table), name, between)
        for name, entry in matrices.items()
        for suffix, between in _FACTORS.items()
        if name == f"{suffix}.weight" or name.endswith(f".{suffix}.weight")
        if entry.shape[1] == table.shape[1]
    ]
    if not found:
        return []
    _, name, between = max(found, key=lambda each: each[0])
    others = _present(tensors, {"projection": name, "bias": f"{name.removesuffix('.weight')}.bias"})
    return [_table("factorized", "factors", [table], others, between)]


def _common(one: str, other: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _values(tensors: Tables, matrices: Tables) -> list[TokenTable]:
    found = []
    for name, entry in matrices.items():
        if (match := _VALUES.search(name)) is None:
            continue
        form = "neomme" if "value_embeddings" in name else "nanogpt"
        gate = f"h.{match[2]}.attn.ve_gate.weight"  # nanochat numbers its tables by layer, modded-nanogpt does not
        gates = [each for each in tensors if each == gate or each.endswith(f".{gate}")]
        table = _table("values", form, [entry], {"gate": gates[0]} if gates else {})
        found.append(TokenTable(**{**vars(table), "layer": int(match[2])}) if gates else table)
    return found


def _hashed(tensors: Tables, matrices: Tables) -> list[TokenTable]:
    found: list[TokenTable] = []
    for form, pattern in (("qwen4_exp", _SHARDED), ("longcat", _LONGCAT)):
        stems: dict[str, list[tuple[int, Entry]]] = {}
        for name, entry in matrices.items():
            if (match := pattern.search(name)) is not None:
                stems.setdefault(match[1], []).append((int(match[2] or 0), entry))
        for stem, parts in stems.items():
            others = {
                "multipliers": f"{stem}layer_multipliers",
                "table_rows": f"{stem}ngram_heads_vocab_sizes",
                "offsets": f"{stem}ngram_heads_offsets",
            }
            others |= {f"projection {n}": f"{stem}ngram_embeddings.post_projs.{n}.weight" for n, _ in _in_order(parts)}
            entries = [entry for _, entry in _in_order(parts)]
            found.append(_table("hashed n-grams", form, entries, _present(tensors, others)))
    for form, pattern in (("blt", _BLT), ("engram", _ENGRAM)):
        for name, entry in matrices.items():
            if (match := pattern.search(name)) is not None:
                offsets = _present(tensors, {"offsets": f"{match[1]}multi_head_embedding.offsets"})
                found.append(_table("hashed n-grams", form, [entry], offsets))
    return found


def _in_order(parts: Iterable[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
    """Return the parts of a table in the order of their numbers."""
    return sorted(parts, key=lambda part: part[0])
