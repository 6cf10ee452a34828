"""Build the positional encoding of a model, or of a run of a comparison, with the learned tables of its files."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.errors import CheckpointError, SettingError, WhatWhereError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.gguf_architectures import why_unread
from whatwhere.models.checkpoint.names import QUERIES
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.model_types import MODEL_TYPES

if TYPE_CHECKING:
    from whatwhere.where.binding import Where

TOKENS = "/input.tokens.weight"  # name of a run's token table, behind the name of the run
_DEFAULT_HEADS = 2
_DEFAULT_LENGTH, _MAX_LENGTH = 64, 1 << 20  # of results that do not name one, or an absurd one
_BIAS_TABLES = ("relative_attention_bias.weight", "attn_rel_b.weight")
_PLAIN = (
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi",
    "bert", "roberta", "stablelm", "olmo", "olmo2", "cohere", "starcoder2", "granite", "smollm3",
)  # fmt: skip
"""Model types whose layers all have the same heads, with queries and keys in tensors of their own."""
_PROJECTION = re.compile(
    r"(?:encoder\.)?layers?\.(\d{1,5})\.(?:self_attn|attention\.self)\.(q_proj|k_proj|query|key)\.weight"
)
_OTHERWISE = (
    "Choose a scheme of the catalogue: whatwhere.scheme(name, dim, num_heads, max_length), or encode --scheme none."
)
_NAMES: Mapping[str, tuple[str, ...]] = {
    "LearnedRotary.alpha": (".rotary_emb.alpha", ".lerope.alpha"),
    "SSMax.weight": (".layers.{}.self_attn.softmax_scaling.scale", ".layers.{}.attention.ssmax_scaling.s"),
    "SSMax.bias": (".layers.{}.self_attn.softmax_scaling.bias", ".layers.{}.attention.ssmax_scaling.b"),
    "Inkling.weight": (".layers.{}.self_attn.r_proj.weight", ".layers.{}.attn.wr_du.weight"),
    "Inkling.profiles": (".layers.{}.self_attn.rel_logits_proj.proj", ".layers.{}.attn.rel_logits_proj.proj"),
    "Inkling.gain": (".layers.{}.self_attn.rel_l2_clip.scale", ".layers.{}.attn.rel_l2_clip.scale"),
    "TransformerXL.u": (".layer.{}.rel_attn.r_w_bias",),
    "TransformerXL.v": (".layer.{}.rel_attn.r_r_bias",),
    "TransformerXL.weight": (".layer.{}.rel_attn.r",),
    "Sink.weight": (
        ".layers.{}.self_attn.sinks",
        ".layers.{}.self_attn.attention_sink_bias",  # MiMo-V2
        ".layers.{}.self_attn.learnable_sink_param",  # Hy4
        ".layers.{}.self_attn.softmax_offset",  # Flint
        ".blk.{}.attn_sinks.weight",
    ),
}
"""Class and parameter of a scheme -> ends of the names that published files have for it, {} the number of a layer."""


@dataclass(frozen=True, eq=False)
class LoadedWhere:
    """The positional encoding of one layer."""

    title: str
    where: "Where"  # with the learned tables of the file
    dim: int  # of a token vector
    num_heads: int
    head_dim: int
    max_length: int | None = None  # positions that a table or a configuration has; None for any number
    notes: tuple[str, ...] = ()  # what differs from the model: tables not in the file, norms that are not built


def load_where(source: Checkpoint | str | Path, run: str | None = None) -> LoadedWhere:
    """Build the positional encoding of a model's first layer that has one, with the learned tables of its files.

    Of a comparison, build that of the first layer of a run. What the files lack is sampled from seed 0, and noted.

    Args:
        source: a checkpoint, or the path of one.
        run: name of a run of a comparison, such as "rotary-0" for rotary with seed 0, or a prefix in `names.models`.

    Returns:
        The encoding, with the sizes of the layer.

    Raises:
        CheckpointError: If the files cannot be read, or a table has the wrong shape.
        SettingError: If there is neither a configuration that is understood nor a position table; or the comparison has
            no such run, or its scheme is your own and not in the checkpoint's `builds`.

    Examples:
        >>> import json, tempfile
        >>> import numpy as np
        >>> from safetensors.numpy import save_file
        >>> config = {"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1,
        ...           "num_attention_heads": 2}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "config.json").write_text(json.dumps(config))
        ...     save_file({"model.embed_tokens.weight": np.ones((9, 8), np.float32)}, f"{folder}/model.safetensors")
        ...     load_where(folder).where
        Where(query_key=Rotary(head_dim=4, theta=10000.0, interleaved=False, rotary_dim=4))
    """
    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint.open(source)
    if not checkpoint.runs:
        checkpoint, run = of_run(checkpoint, run), None
    if run is not None and (name := chosen_run(checkpoint, run)) is not None:
        return _of_run(checkpoint, name)
    try:
        description = checkpoint.description
    except WhatWhereError as problem:
        return _of_table(checkpoint, problem)
    return _of_description(checkpoint, description)


def attention_of_layers(checkpoint: Checkpoint) -> "list[tuple[Where, tuple[str, ...]]]":
    """Build the attention of each layer, with the learned numbers of its files, and notes on what these lack."""
    description = checkpoint.description
    description.require_attention()
    if (wrong := next(wrong_shapes(checkpoint), None)) is not None:
        raise CheckpointError(
            "{table} has {stored:,} {axis}, but by {keys} of the configuration {needed:,}.".format_map(wrong)
            + "\nCorrect the configuration, or pass it alone."
        )
    layers = (_of_layer(checkpoint, description, layer) for layer in range(description.layers))
    return [(where, tuple(notes)) for where, notes in layers]


def wrong_shapes(checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
    """Yield the features of tokens, the first queries and keys, and the layers that the configuration has otherwise."""
    config, table = checkpoint.config or {}, checkpoint.token_table
    # A configuration of GGUF is made of its tables, and a nested one has tensors of other models in its files.
    if checkpoint.format == "gguf" or config.get("model_type") not in _PLAIN or config.get("pruned_heads"):
        return
    if table is None or checkpoint.names.guessed or not _is_plain(checkpoint.entry(table)):
        return
    description, kind = checkpoint.description, MODEL_TYPES[config["model_type"]]
    names, heads = kind.names_of(None), description.heads[0]

    def key(size: str) -> str:
        return next((name for name in names[size] if config.get(name) is not None), names[size][0])

    own = "head_dim" in names and {*names["head_dim"]} & {name for name, x in {**kind.defaults, **config}.items() if x}
    of_queries = key("num_heads")
    dim = key("head_dim") if own else f"{key('dim')} / {of_queries}"
    of_keys = key("key_heads") if "key_heads" in names and config.get(key("key_heads")) else of_queries
    sizes = {  # axis, key of the configuration -> what has the size, stored and needed
        ("features", key("dim")): (table, checkpoint.entry(table).shape[1], description.token_dim)
    }
    prefix, layers = re.sub(r"(embeddings\.)?\w+\.weight$", "", table), 0
    for name, entry in checkpoint.tensors.items():
        found = _PROJECTION.fullmatch(name[len(prefix) :]) if name.startswith(prefix) else None
        if found is None:
            continue
        layers = max(layers, int(found[1]) + 1)
        asks = found[2] in QUERIES
        needed = heads.head_dim * (heads.num_heads if asks else heads.key_heads)
        if _is_plain(entry) and entry.shape[0] != needed:
            sizes.setdefault(("rows", f"{of_queries if asks else of_keys} and {dim}"), (name, entry.shape[0], needed))
    if 1 < layers < description.layers and "-of-" not in checkpoint.path.name:  # a shard has some layers alone
        sizes["layers", key("layers")] = ("the file", layers, description.layers)
    for (axis, keys), (what, has, needed) in sizes.items():
        if has != needed:
            yield {"table": what, "axis": axis, "stored": has, "keys": keys, "needed": needed}


def _is_plain(entry: Entry) -> bool:
    # Numbers of other types may be packed, several in one.
    return len(entry.shape) == 2 and entry.dtype in ("float16", "bfloat16", "float32", "float64")


def chosen_run(checkpoint: Checkpoint, run: str | None) -> str | None:
    """Return the run of a comparison that was named, or its only one; None for any other checkpoint."""
    names = checkpoint.runs  # of files; that of "rotary+alibi-0" has a digest: runs are named by scheme and seed, too
    records = checkpoint.metadata.get("runs") if checkpoint.format == "results" and run not in names else None
    for record in records if isinstance(records, list) else []:
        if f"{record.get('scheme')}-{record.get('seed')}" == run:
            run = Path(str(record.get("file"))).stem
    shown = f"{', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
    if run is not None and run not in names:
        known = f"its runs are {shown}" if names else "it is not a comparison with trained models"
        raise SettingError(
            f"{checkpoint.path} has no run {quoted(run)}: {known}.\nName one of the runs of a comparison."
        )
    if run is None and len(names) > 1:
        raise SettingError(
            f"{checkpoint.path} has {len(names)} runs, each with tables of its own: its runs are {shown}.\n"
            f"Name one, as in --run {names[0]}, or run={names[0]!r} in Python."
        )
    return run or (names[0] if names else None)


def of_run(checkpoint: Checkpoint, run: str | None) -> Checkpoint:
    """Return the run of a comparison, or the model of several in a file, that is named; any other as it is."""
    if checkpoint.names.models:
        return checkpoint.model(run)
    name = chosen_run(checkpoint, run)
    return checkpoint if name is None else checkpoint.run(name)


def default_heads(checkpoint: Checkpoint, dim: int) -> int:
    """Return the model's number of heads where it divides dim, else a small number that leaves rotary its pairs."""
    config = checkpoint.config or {}
    own = config.get("num_attention_heads", config.get("n_head"))
    if isinstance(own, int) and not isinstance(own, bool) and own > 0 and dim % own == 0:
        return own
    return _DEFAULT_HEADS if dim % (2 * _DEFAULT_HEADS) == 0 else 1


def bias_tables(checkpoint: Checkpoint, part: str | None, count: int) -> list[str]:
    """Return the names of the learned bias tables of a part, in the order of its layers."""
    prefixes = {"decoder": ("decoder.", "dec."), "encoder": ("encoder.", "enc."), None: ("",)}[part]
    names = [
        name
        for name in checkpoint.tensors
        if name.endswith(_BIAS_TABLES) and any(name.startswith(prefix) or f".{prefix}" in name for prefix in prefixes)
    ]
    ordered = sorted(names, key=lambda name: [int(piece) if piece.isdigit() else -1 for piece in name.split(".")])
    return ordered[:count]


def fill_bias(scheme: Any, checkpoint: Checkpoint, table: str) -> None:
    """Copy a learned table of a checkpoint into the `weight` of a bias; raise CheckpointError if the shapes differ."""
    _copy(checkpoint.array(table), table, scheme.weight)


def fill_frequencies(scheme: Any, checkpoint: Checkpoint) -> bool:
    """Copy learned frequencies of a checkpoint into a map; return whether it has them, or the map needs none."""
    return not _fill(checkpoint, 0, scheme, [])


def _fill(checkpoint: Checkpoint, layer: int, scheme: Any, tables: list[str]) -> list[str]:
    """Copy the learned numbers of a layer's scheme and return notes on what is not there; `tables` are of biases."""
    notes = []
    for module in scheme.modules():
        kind = type(module).__name__
        for parameter, own in module.named_parameters(recurse=False):
            ends = tuple(name.format(layer) for name in _NAMES.get(f"{kind}.{parameter}", ()))
            # Layers for drafting have names of their own, which contain mtp.
            named = (name for name in checkpoint.tensors if f".{name}".endswith(ends) and "mtp" not in name)
            found = next(named, None) if ends else tables[-1] if tables and parameter == "weight" else None
            if found is None:
                why = "is not in the file under a known name"
                why = "is a product of the file's weights, and not computed" if kind == "DeBERTa" else why
                state = "0" if kind == "Sink" else "as before training"
                notes.append(f"`{parameter}` of {kind} in layer {layer} {why}: {state}")
                continue
            values = checkpoint.array(found)
            _copy(np.moveaxis(values, 0, -1) if kind == "TransformerXL" and values.ndim == 3 else values, found, own)
    return notes


def _copy(values: np.ndarray, name: str, parameter: Any) -> None:
    from torch import from_numpy, no_grad

    if values.shape != tuple(parameter.shape):
        raise CheckpointError(
            f"{quoted(name)} has the shape {values.shape}, but the configuration needs {tuple(parameter.shape)}."
        )
    with no_grad():
        parameter.copy_(from_numpy(values.astype(np.float32)))


def _of_description(checkpoint: Checkpoint, description: Description) -> LoadedWhere:
    description.require_attention()
    plans = list(zip(description.query_key, description.score, strict=True))
    layer = next((n for n, pair in enumerate(plans) if any(plan is not None for plan in pair)), 0)
    encoding: Any = None
    absent: list[str] = []
    if checkpoint.position_table is not None:
        encoding = _position_table(checkpoint)
    elif description.input is not None and "max_length" in description.input.settings:
        absent = [f"its position embedding is {description.input.class_name}, but no table of it is in the file"]
    elif description.input is not None:
        encoding = description.input.build()
    where, missing = _of_layer(checkpoint, description, layer, encoding)
    notes = list(description.notes)
    if description.layers > 1 and plans[layer] != (None, None):
        notes.append(f"shown is layer {layer} of {description.layers}, counted from 0")
    return LoadedWhere(
        f"the model's own ({description.model_type})", where,
        description.token_dim if encoding is None else encoding.dim, description.heads[layer].num_heads,
        description.heads[layer].head_dim if where.query_key is None else where.query_key.head_dim,
        description.max_length if description.input is not None else None, (*notes, *missing, *absent),
    )  # fmt: skip


def _of_layer(
    checkpoint: Checkpoint, description: Description, layer: int, encoding: Any = None
) -> "tuple[Where, list[str]]":
    """Build the attention of a layer with the learned numbers of the files, and return notes on what they lack."""
    where, plan = description.where(layer, encoding), description.score[layer]
    tables = bias_tables(checkpoint, description.part, 1 if plan is None or plan.shared else layer + 1)
    schemes = [scheme for scheme in (where.query_key, where.score, where.sink) if scheme is not None]
    return where, [note for scheme in schemes for note in _fill(checkpoint, layer, scheme, tables)]


def _of_table(checkpoint: Checkpoint, problem: WhatWhereError) -> LoadedWhere:
    """Build the encoding of a position table that comes without a configuration that is understood."""
    from whatwhere.where.binding import Where

    why = why_unread(checkpoint.metadata) or "there is no configuration"
    if checkpoint.config is not None:
        why = f"the configuration is not understood: {' '.join(str(problem).splitlines()).removesuffix('.')}"
    if checkpoint.position_table is None:
        raise SettingError(f"the positional encoding of {checkpoint.path} is not known: {why}.\n{_OTHERWISE}")
    encoding = _position_table(checkpoint)
    heads = default_heads(checkpoint, encoding.dim)
    note = f"{why}: by its name, the table is added to the token vectors"
    return LoadedWhere(
        "the position table of the file", Where(input=encoding), encoding.dim, heads, encoding.dim // heads,
        encoding.max_length, (note,),
    )  # fmt: skip


def _position_table(checkpoint: Checkpoint) -> Any:
    """Load the position table into a Learned encoding."""
    import torch

    from whatwhere.where.input.learned import Learned

    offset = checkpoint.position_offset or 0
    table = np.asarray(checkpoint.array(str(checkpoint.position_table)), np.float32)
    if table.ndim != 2 or len(table) <= offset or not table.size:
        raise CheckpointError(f"the table of positions has the shape {table.shape}, but (positions, dim) is needed.")
    scheme = Learned(table.shape[1], len(table) - offset, offset, device="meta")
    scheme.weight = torch.nn.Parameter(torch.from_numpy(table.copy()), requires_grad=False)
    return scheme


def _of_run(checkpoint: Checkpoint, name: str) -> LoadedWhere:
    """Build the encoding of the first layer of a run, with the tables that were saved."""
    import torch

    from whatwhere.where.catalogue import build_layers, require_builds, scheme_seed, split_layers
    from whatwhere.where.input.learned import Learned

    dim, heads, rows, scheme = _run_settings(checkpoint, name)
    own, sources = _record(checkpoint, name).get("own") is True, own_sources(checkpoint, name)
    builds = require_builds(scheme, checkpoint.builds, sources, checkpoint.path) if own else {}
    saved = {
        key.removeprefix(begin): key
        for begin in (f"{name}/input.where.", f"{name}/wheres.0.")
        for key in checkpoint.tensors
        if key.startswith(begin)
    }
    first = scheme if scheme in builds else split_layers(scheme)[0]
    where = build_layers(first, dim, heads, rows, scheme_seed(0), builds)[0]  # the first layer of a mixture by layer
    new = where.state_dict()
    fitting = {
        key: tensor for key, tensor in saved.items() if key in new and new[key].shape == checkpoint.entry(tensor).shape
    }
    where.load_state_dict(
        {key: torch.from_numpy(checkpoint.array(tensor)) for key, tensor in fitting.items()}, strict=False
    )
    unsaved = sorted(set(new) - set(fitting))
    notes = (f"the run did not save {', '.join(unsaved)}: random, with seed 0",) if unsaved else ()
    size = dim // heads if where.query_key is None else where.query_key.head_dim
    title = f"{scheme}, seed {name.rpartition('-')[2]}"
    return LoadedWhere(title, where, dim, heads, size, rows if isinstance(where.input, Learned) else None, notes)


def run_length(checkpoint: Checkpoint, run: str) -> int:
    """Return for how many positions the scheme of a run was built: those of its longest training sequence, or more."""
    return _run_settings(checkpoint, run)[2]


def _run_settings(checkpoint: Checkpoint, name: str) -> tuple[int, int, int, str]:
    """Return a run's features, heads, positions and scheme, of results that anybody may have written."""
    settings, run = checkpoint.metadata.get("settings"), _record(checkpoint, name)
    dim = checkpoint.entry(name + TOKENS).shape[1]
    heads = next(
        (part["heads"] for part in (run.get("varied"), settings) if isinstance(part, Mapping) and "heads" in part), None
    )
    heads = heads if isinstance(heads, int) and heads > 0 and dim % heads == 0 else gcd(dim, _DEFAULT_HEADS)
    rows = run.get("max_length")
    rows = rows if isinstance(rows, int) and 0 < rows <= _MAX_LENGTH else _DEFAULT_LENGTH
    return dim, heads, rows, str(run.get("base") or run.get("scheme", name.rpartition("-")[0]))


def _record(checkpoint: Checkpoint, name: str) -> Mapping[str, Any]:
    records = checkpoint.metadata.get("runs")
    runs = records if isinstance(records, list) else []
    return next((run for run in runs if run.get("file") == f"models/{name}.safetensors"), {})


# Schemes of the caller's own: their source is kept as text, which nothing runs, and compared with what is passed again


def own_sources(checkpoint: Checkpoint, run: str) -> dict[str, str]:
    """Return the sources of a run's own schemes by name, of results that anybody may have written."""
    from whatwhere.where.catalogue import entry_names

    found, base = checkpoint.metadata.get("sources"), str(_record(checkpoint, run).get("base"))
    kept: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    names = [base] if base in kept else entry_names(base) & kept.keys()
    return {name: str(kept[name]) for name in sorted(names)}
