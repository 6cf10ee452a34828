"""Load tables beside the token table into their modules: per-layer, factorized, value and hashed n-gram tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.names import TokenTable
from whatwhere.models.configuration.keys import Keys
from whatwhere.what.model_tables import FactorizedEmbedding, PerLayerEmbedding, ValueEmbedding
from whatwhere.what.ngram_hash import (
    BLT_PRIMES,
    HashedNGramEmbedding,
    NGramHash,
    longcat_hashes,
    multipliers_of_qwen4_exp,
    polynomial_hashes,
    primes_from,
    xor_hashes,
)
from whatwhere.what.token_ids import nested_configs

Sibling = FactorizedEmbedding | HashedNGramEmbedding | PerLayerEmbedding | ValueEmbedding
_MAX_HASHES = 4096


def load_token_table(
    source: Checkpoint | str | Path, name: str | None = None, *, into: HashedNGramEmbedding | None = None
) -> Sibling:
    """Load a table that token ids select beside the token table, with its weights in their stored types.

    Gemma 3n's and 4's per-layer tables, the factors of ALBERT, ELECTRA, DeBERTa, OPT 350M and NeoMME, value embeddings
    of NeoMME and nanochat, and hashed n-grams of Qwen4-Exp, BLT and LongCat. What a layer does with their vectors, such
    as a gate, is part of the layer, and is not loaded. LongCat's projections are not either: multiply the concatenated
    vectors by them, one below the other.

    Args:
        source: a checkpoint, or the path of one.
        name: of the table, one of `checkpoint.token_tables`; None where there is only one.
        into: for a table of hashed n-grams whose hashes neither its file nor its configuration states: a module with
            these hashes, on the meta device, which gets the rows.

    Returns:
        A PerLayerEmbedding, FactorizedEmbedding, ValueEmbedding or HashedNGramEmbedding.

    Raises:
        CheckpointError: If there is no such table, a tensor of it is missing or has another shape than the others
            need, or a setting that it needs is not stated.
        SettingError: If there are several tables and none is named, or a setting cannot be used.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from safetensors.numpy import save_file
        >>> names = "embed_tokens.weight", "embedding_hidden_mapping_in.weight", "embedding_hidden_mapping_in.bias"
        >>> shapes = (9, 4), (6, 4), (6,)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_file({n: np.ones(s, "float32") for n, s in zip(names, shapes)}, f"{folder}/model.safetensors")
        ...     table = load_token_table(folder)
        >>> table.projection
        Linear(in_features=4, out_features=6, bias=True)
    """
    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint.open(source)
    table = _chosen(checkpoint, name)
    if table.kind == "per layer":
        return _per_layer(checkpoint, table)
    if table.kind == "factorized":
        return _factorized(checkpoint, table)
    if table.kind == "values":
        return _values(checkpoint, table)
    embedding = ngram_embedding(checkpoint, table) if into is None else into
    if into is not None:
        _require_rows_of(checkpoint, table, into)
    _fill(embedding.table, "weight", _rows(checkpoint, table))
    return embedding


def ngram_embedding(checkpoint: Checkpoint, table: TokenTable) -> HashedNGramEmbedding:
    """Return the module of a table of hashed n-grams without its rows, which are on the meta device."""
    if table.form == "engram":
        raise CheckpointError(
            f"{quoted(table.name)} is Engram's, whose files state neither its hashes nor which tokens count as the "
            "same.\nPass into=HashedNGramEmbedding(...) on the meta device, and it ids of the normalized vocabulary."
        )
    hashes, settings = {"qwen4_exp": _qwen4_exp, "blt": _blt, "longcat": _longcat}[table.form](checkpoint, table)
    rows = max(table.rows, sum(each.rows for each in hashes))
    module = HashedNGramEmbedding(hashes, table.features, num_embeddings=rows, device="meta", **settings)
    _require_rows_of(checkpoint, table, module)
    return module


def _require_rows_of(checkpoint: Checkpoint, table: TokenTable, module: HashedNGramEmbedding) -> None:
    """Raise CheckpointError if a table of the file is not that of a module, or begins its parts elsewhere."""
    shape = tuple(module.table.weight.shape)
    if (table.rows, table.features) != shape:
        raise _contradiction(
            f"{quoted(table.name)} has {table.rows:,} rows of {table.features} features, but the hashes need "
            f"{shape[0]:,} of {shape[1]}"
        )
    stored = _whole_numbers(checkpoint, table.others["offsets"]) if "offsets" in table.others else module.offsets[:-1]
    if stored != module.offsets[:-1]:
        raise _contradiction(
            f"{quoted(table.others['offsets'])} begins {', '.join(map(str, stored[:4]))}, but the hashes of "
            f"{quoted(table.name)} begin at {', '.join(map(str, module.offsets[:4]))}"
        )


def _contradiction(what: str) -> CheckpointError:
    return CheckpointError(f"{what}.\nThe file is damaged or incomplete, or the configuration is of a different model.")


def _chosen(checkpoint: Checkpoint, name: str | None) -> TokenTable:
    tables = {table.name: table for table in checkpoint.token_tables}
    if not tables:
        raise CheckpointError(
            f"{checkpoint.path} has no table that token ids select beside the token table.\n"
            "The token table itself: TokenEmbedding.from_weight(checkpoint.tensor(checkpoint.token_table))."
        )
    if name is None and len(tables) > 1:
        raise SettingError(
            f"{checkpoint.path} has {len(tables)} such tables: {', '.join(list(tables)[:6])}.\nName one of them."
        )
    if name is not None and name not in tables:
        raise CheckpointError(
            f"{checkpoint.path} has no such table {quoted(name)}; it has {', '.join(list(tables)[:6])}.\nName one."
        )
    return next(iter(tables.values())) if name is None else tables[name]


def _other(checkpoint: Checkpoint, table: TokenTable, role: str) -> str:
    if role not in table.others:
        raise _contradiction(f"{checkpoint.path} has the table {quoted(table.name)}, but no {role} for it beside it")
    return table.others[role]


def _require_shape(checkpoint: Checkpoint, name: str, shape: tuple[int, ...], because: str) -> None:
    if (stored := checkpoint.entry(name).shape) != shape:
        raise _contradiction(f"{quoted(name)} has the shape {stored}, but {shape} is needed, because {because}")


def _fill(module: Any, parameter: str, values: Tensor) -> None:
    setattr(module, parameter, nn.Parameter(values, requires_grad=values.is_floating_point()))


def _settings(checkpoint: Checkpoint, *markers: str) -> Keys:
    """Return the keys of the part of the configuration that has one of some keys; empty where none has."""
    config = checkpoint.config or {}
    part: Mapping[str, Any] = next((each for each in nested_configs(config) if any(key in each for key in markers)), {})
    return Keys(dict(part), {}, str(config.get("model_type")))


# Rows for each layer


def _per_layer(checkpoint: Checkpoint, table: TokenTable) -> PerLayerEmbedding:
    projection, norm = (_other(checkpoint, table, role) for role in ("projection", "norm"))
    size = checkpoint.entry(norm).shape
    if len(size) != 1 or not size[0] or table.features % size[0]:
        raise _contradiction(
            f"{quoted(norm)} has the shape {size}, which does not divide the {table.features} columns of "
            f"{quoted(table.name)} into layers"
        )
    columns = checkpoint.entry(projection).shape[-1] if checkpoint.entry(projection).shape else 0
    _require_shape(
        checkpoint, projection, (table.features, columns), f"{quoted(table.name)} has {table.features} columns"
    )
    settings = _settings(checkpoint, "rms_norm_eps")
    gemma3n = any(str(part.get("model_type")).startswith("gemma3n") for part in nested_configs(checkpoint.config or {}))
    module = PerLayerEmbedding(
        table.rows, table.features // size[0], size[0], columns, eps=settings.number("rms_norm_eps"),
        outside=0 if gemma3n else None, device="meta",
    )  # fmt: skip
    _fill(module.tokens, "weight", _rows(checkpoint, table))
    _fill(module.projection, "weight", checkpoint.tensor(projection))
    _fill(module, "norm", checkpoint.tensor(norm))
    return module


# Factors


def _factorized(checkpoint: Checkpoint, table: TokenTable) -> FactorizedEmbedding:
    projection, bias = _other(checkpoint, table, "projection"), table.others.get("bias")
    dim = checkpoint.entry(projection).shape[0]
    if bias is not None:
        _require_shape(checkpoint, bias, (dim,), f"{quoted(projection)} has {dim} rows")
    module = FactorizedEmbedding(table.rows, table.features, dim, bias=bias is not None, device="meta")
    _fill(module.tokens, "weight", _rows(checkpoint, table))
    _fill(module.projection, "weight", checkpoint.tensor(projection))
    if bias is not None:
        _fill(module.projection, "bias", checkpoint.tensor(bias))
    return module


# Values of attention


def _values(checkpoint: Checkpoint, table: TokenTable) -> ValueEmbedding:
    settings = _settings(checkpoint, "num_key_value_heads", "n_kv_head", "num_attention_heads", "n_head")
    heads = settings.whole("num_key_value_heads", "n_kv_head", "num_attention_heads", "n_head")
    head_dim = settings.whole("head_dim", default=None)
    if table.features % heads or (head_dim is not None and heads * head_dim != table.features):
        needed = f"{heads} heads" if head_dim is None else f"{heads} heads of {head_dim} features"
        raise _contradiction(f"{quoted(table.name)} has {table.features} columns, but the configuration has {needed}")
    module = ValueEmbedding(table.rows, heads, table.features // heads, device="meta")
    _fill(module.tokens, "weight", _rows(checkpoint, table))
    return module


# Hashed n-grams

Hashing = tuple[tuple[NGramHash, ...], dict[str, Any]]  # the hashes of a table, and the other settings of its module


def _qwen4_exp(checkpoint: Checkpoint, table: TokenTable) -> Hashing:
    """Return the hashes that the file has in buffers, as transformers loads them, or those of the configuration."""
    # The id at which n-grams end is in no buffer.
    settings = _settings(checkpoint, "ngram_size", "ple_layer_ids", "ngram_vocab_size_base")
    eos = settings.take("eos_token_id")
    eos = eos[0] if isinstance(eos, list) and eos else eos
    if isinstance(eos, bool) or not isinstance(eos, int) or eos < 0:
        raise CheckpointError(
            f"eos_token_id is {quoted(str(eos))}, but the n-grams of {quoted(table.name)} end at a token.\n"
            "State its id."
        )
    if {"multipliers", "table_rows"} <= set(table.others):
        multipliers = _whole_numbers(checkpoint, table.others["multipliers"])
        rows = _whole_numbers(checkpoint, table.others["table_rows"])
        each, rest = divmod(len(rows), max(len(multipliers) - 1, 1))
        if rest or len(multipliers) < 2:
            raise CheckpointError(
                f"{quoted(table.others['table_rows'])} has {len(rows)} numbers, which are not as many for each n of 2 "
                f"to {len(multipliers)}.\nThe file is damaged."
            )
    else:
        n = settings.whole("ngram_size", default=3, least=2, most=64)
        each = settings.whole("heads_per_ngram", default=8, most=_MAX_HASHES // n)
        layers = settings.listed("ple_layer_ids", 10_000)
        if table.layer is None or table.layer + 1 not in layers:
            raise CheckpointError(
                f"ple_layer_ids is {list(layers)}, counted from 1, but {quoted(table.name)} is of layer {table.layer}, "
                "counted from 0.\nThe configuration belongs to another model."
            )
        index = sorted(set(layers)).index(table.layer + 1)
        total = (n - 1) * each
        multipliers = multipliers_of_qwen4_exp(
            settings.whole("vocab_size"), n, index, settings.whole("seed", default=1234, least=0)
        )
        base = settings.whole("ngram_vocab_size_base", default=20_000_000, most=1 << 40)
        rows = primes_from(base, total, skip=index * total)
    found = xor_hashes(multipliers, [rows[start : start + each] for start in range(0, len(rows), each)])
    return found, {"padding_id": eos, "border_id": eos}


def _blt(checkpoint: Checkpoint, table: TokenTable) -> Hashing:
    settings = _settings(checkpoint, "encoder_hash_byte_group_size", "encoder_hash_byte_group_vocab")
    lengths = settings.listed("encoder_hash_byte_group_size", 64)
    rows = settings.whole("encoder_hash_byte_group_vocab", default=500_002)
    functions = settings.whole("encoder_hash_byte_group_nb_functions", default=1, most=len(BLT_PRIMES))
    found = polynomial_hashes(lengths, rows, BLT_PRIMES[:functions])
    if sum(each.rows for each in found) != table.rows:
        raise _contradiction(
            f"{quoted(table.name)} has {table.rows:,} rows, but the configuration has {len(found)} tables of {rows:,}"
        )
    return found, {"padding_id": 0, "merge": "sum"}


def _longcat(checkpoint: Checkpoint, table: TokenTable) -> Hashing:
    settings = _settings(checkpoint, "emb_split_num", "emb_neighbor_num")
    n, each = settings.whole("emb_neighbor_num", least=2, most=64), settings.whole("emb_split_num")
    rows = [checkpoint.entry(name).shape[0] for name in table.tensors]
    if len(rows) != (n - 1) * each or len({checkpoint.entry(name).shape[1] for name in table.tensors}) != 1:
        raise _contradiction(
            f"{quoted(table.name)} is the first of {len(rows)} tables, but {(n - 1) * each} of one width are needed: "
            f"emb_neighbor_num is {n} and emb_split_num {each}"
        )
    found = longcat_hashes(settings.whole("vocab_size"), [rows[at : at + each] for at in range(0, len(rows), each)])
    return found, {"padding_id": 0, "border_id": settings.whole("eos_token_id", default=2, least=0)}


def _whole_numbers(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    entry = checkpoint.entry(name)
    if len(entry.shape) != 1 or not 0 < entry.shape[0] <= _MAX_HASHES or "int" not in entry.dtype:
        raise _contradiction(
            f"{quoted(name)} is {entry.dtype} of the shape {entry.shape}, but a list of whole numbers is needed"
        )
    return tuple(int(number) for number in checkpoint.array(name))


def _rows(checkpoint: Checkpoint, table: TokenTable) -> Tensor:
    """Return the rows of a table, its parts one below the other, without holding them twice."""
    if len(table.tensors) == 1:
        return checkpoint.tensor(table.name)
    first = checkpoint.tensor(table.name)
    whole = torch.empty(table.rows, table.features, dtype=first.dtype)
    start = 0
    for name in table.tensors:
        part = checkpoint.tensor(name)
        if part.shape[1] != table.features or part.dtype != first.dtype:
            raise CheckpointError(
                f"{quoted(name)} is {part.dtype} of the shape {tuple(part.shape)}, but it continues "
                f"{quoted(table.name)}, {first.dtype} of {table.features} columns.\nThe file is damaged."
            )
        whole[start : start + len(part)] = part
        start += len(part)
    return whole
