"""Tensors that a file stores in parts, each shown as the one that the model has; its rows are computed when read.

Parts are codes and their scales (quantized.py), a base and what an adapter adds to it, or the shared rows and the
mapping of model2vec.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Chosen, Combined, Contents, Entry
from whatwhere.models.checkpoint.files import is_whole_number, read_json
from whatwhere.models.configuration.keys import Json

MERGE = "Pass the base, or merge the two: model.merge_and_unload().save_pretrained(FOLDER)."
_MOST = 1 << 30
"""Numbers of a table behind a mapping, of which a small file could claim any number."""
_CONFIG, _MAX_CONFIG_BYTES = "adapter_config.json", 10_000_000
_PREFIX = "base_model.model."
_MARK = re.compile(r"(?:^|[._])(?:lora_|base_layer\.|modules_to_save\.|trainable_tokens_|prompt_embeddings$)")
"""What is only in the names of an adapter's tensors."""
_BASE = re.compile(r"^(.+?)\.(?:token_adapter\.)?(?:base_layer|original_module|modules_to_save\.[^.]+)\.weight$")
_CHANGE = re.compile(
    r"^(?:token_adapter\.)?(lora_embedding_[AB]|lora_[AB]|trainable_tokens_delta)(?:\.([^.]+?))??(?:\.weight)?$"
)
_ORIGINAL = re.compile(r"^(?:token_adapter\.)?trainable_tokens_original")
_OTHER_RULES = (
    "use_dora", "use_qalora", "use_bdlora", "alora_invocation_tokens", "arrow_config", "velora_config", "kasa_config",
    "monteclora_config", "fan_in_fan_out", "layer_replication",
)  # fmt: skip
"""Settings of LoRA that change its rule."""


class Unread(Exception):
    """The rows are not known; the message says why, as `Combined.why`."""


def with_combined(contents: Contents, found: Mapping[str, Combined]) -> Contents:
    """Return contents in which combined tensors stand for their parts."""
    if not found:
        return contents
    whole = {part: one for one in found.values() for part in one.parts}
    entries: dict[str, Entry] = {}
    for name, entry in contents.entries.items():
        entries.setdefault((entry := whole.get(name, entry)).name, entry)
    return replace(contents, entries=entries)


def model2vec(contents: Contents) -> Contents:
    """Return contents in which the table of model2vec has a row for each token: embeddings[mapping[i]] * weights[i].

    Its numbers of 8 bits are the numbers that the model averages, without a scale.
    """
    table, mapping, weights = (contents.entries.get(name) for name in ("embeddings", "mapping", "weights"))
    config = contents.config or {}
    ours = config.get("model_type") == "model2vec" or mapping is not None
    if not ours or table is None or len(table.shape) != 2 or (mapping is weights is None and table.dtype != "int8"):
        return contents
    rows = (mapping or weights or table).shape[0] if (mapping or weights or table).shape else 0
    sides = [entry for entry in (mapping, weights) if entry is not None]
    if any(entry.shape != (rows,) for entry in sides) or (mapping is None and rows != table.shape[0]):
        shapes = ", ".join(f"{entry.name} {entry.shape}" for entry in (table, *sides))
        raise CheckpointError(
            f"{table.file}: the shapes of model2vec's tensors contradict each other: {shapes}.\n"
            "`mapping` and `weights` have a number for each token: save the model again."
        )
    if mapping is not None and ("int" not in mapping.dtype or rows * table.shape[1] > _MOST):
        raise CheckpointError(
            f"{table.file}: `mapping` has the type {mapping.dtype} and {rows:,} rows of {table.shape[1]:,} numbers; "
            f"whole numbers are needed, and at most {_MOST:,} numbers are read.\nSave the model again."
        )

    def read(chosen: Chosen) -> np.ndarray:
        numbers = np.asarray(chosen)
        if mapping is not None:
            numbers = mapping.array(chosen).astype(np.int64)
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < table.shape[0]:
                raise CheckpointError(
                    f"{table.file}: `mapping` names a row outside the {table.shape[0]:,} of `embeddings`.\n"
                    "The file is damaged: save the model again."
                )
        own, back = np.unique(numbers, return_inverse=True)
        values = table.array(own)[back]
        values = values.astype(np.float32) if values.dtype.kind in "iu" else values
        return values if weights is None else values * weights.array(chosen).astype(values.dtype)[:, None]

    parts = (table, *sides)
    label = table.dtype if mapping is None else f"{table.dtype}, shared by tokens"
    dtype = f"{label}{', weighted' if weights else ''}"
    named = ", ".join(one.name for one in parts)
    why = f"is stored in {len(parts)} tensors of model2vec ({named}), which are not changed together"
    learned = prod(table.shape) + (rows if weights else 0)
    way_out = "Distill the model again with the tokens it needs."
    shape = (rows, table.shape[1])
    whole = Combined.of(table.name, shape, dtype, parts, read, why, way_out, learned)
    return with_combined(contents, {table.name: whole})


# Adapters of PEFT. LoRA adds scaling * (B A), transposed for an embedding, with scaling = alpha / r, or alpha / sqrt(r)
# of rank-stabilized LoRA. Trainable tokens replace rows. A module that is saved whole replaces its base.


def adapted(contents: Contents, path: Path) -> Contents:
    """Return contents of an adapter with the tables that it makes of a base in the same file; others unchanged."""
    if not any(_MARK.search(name) or name.startswith(_PREFIX) for name in contents.entries):
        return contents
    config = (path if path.is_dir() else path.parent) / _CONFIG
    settings = read_json(config, _MAX_CONFIG_BYTES) if config.is_file() else {}
    modules: dict[str, dict[str, Entry]] = {}
    for name in contents.entries:
        if (match := _BASE.match(name)) is not None:
            modules[match[1]] = {}
    for name, entry in contents.entries.items():
        begins = [name[: dot.start()] for dot in re.finditer(r"\.", name)]
        if (module := next((begin for begin in begins if begin in modules), None)) is not None:
            modules[module][name[len(module) + 1 :]] = entry
    found = {f"{name}.weight": _merged(name, own, settings) for name, own in modules.items()}
    base = settings.get("base_model_name_or_path", settings.get("model"))  # of PEFT, and of MLX
    of = f"an adapter of {quoted(base)}" if isinstance(base, str) and base else "an adapter, whose base is not stated"
    return replace(with_combined(contents, found), adapter=of)


def _merged(module: str, own: Mapping[str, Entry], settings: Json) -> Combined:
    """Return the weight of a module: its base with what the adapter changes, or the one that is saved whole."""
    name = f"{module}.weight"
    parts = [entry for end, entry in own.items() if not end.endswith("bias")]
    whole = [end for end in own if end.startswith("modules_to_save.") and end.endswith(".weight")]
    bases = whole or [end for end in own if end.endswith(("base_layer.weight", "original_module.weight"))]
    base = own[bases[0]]
    changes = {end: entry for end, entry in own.items() if entry in parts and end not in bases}
    rows: Callable[[Chosen], np.ndarray] | None = None
    try:
        if len(bases) != 1 or len(base.shape) != 2:
            raise Unread(f"is changed by {len(bases)} adapters, or has {len(base.shape)} dimensions")
        change = None if whole else _change(module, base, changes, settings)
        rows, why = _rows_of(base, change), "is made of a base and what an adapter changes"
    except Unread as problem:
        why = str(problem)
    shape = base.shape if len(base.shape) == 2 else (*base.shape, 1, 1)[:2]
    parts = [base, *(part for part in parts if part is not base)]
    return Combined.of(name, shape, f"{base.dtype}, adapted", parts, rows, why, MERGE)


Change = Callable[[np.ndarray, Chosen], np.ndarray]
"""Changes rows of a base, given their numbers."""


def _rows_of(base: Entry, change: Change | None) -> Callable[[Chosen], np.ndarray]:
    def read(chosen: Chosen) -> np.ndarray:
        rows = base.array(chosen)
        return rows if change is None else change(rows, chosen)

    return read


def _change(module: str, base: Entry, changes: Mapping[str, Entry], settings: Json) -> Change:
    kinds: dict[str, Entry] = {}
    for end, entry in changes.items():
        match = _CHANGE.match(end)
        if match is None and not _ORIGINAL.match(end):
            raise Unread(f"is changed by {quoted(end)}, whose rule is not known here")
        if match is not None and kinds.setdefault(match[1], entry) is not entry:
            raise Unread("is changed by several adapters")
    if not kinds:
        raise Unread("is the base of an adapter, whose changes of it are not in the file")
    if not settings:
        raise Unread(f"is changed by an adapter, but no {_CONFIG} beside it states how")
    if kinds.keys() == {"trainable_tokens_delta"}:
        return _replaced(module, base, kinds["trainable_tokens_delta"], settings)
    if kinds.keys() == {"lora_embedding_A", "lora_embedding_B"}:
        return _added(module, base, kinds["lora_embedding_A"], kinds["lora_embedding_B"], settings, True)
    if kinds.keys() == {"lora_A", "lora_B"}:
        return _added(module, base, kinds["lora_A"], kinds["lora_B"], settings, False)
    raise Unread(f"is changed by {', '.join(sorted(kinds))} together, whose rule is not known here")


def _added(module: str, base: Entry, a: Entry, b: Entry, settings: Json, embedding: bool) -> Change:
    scaling = _scaling(module, a, settings, embedding)
    rank = a.shape[0] if a.shape else 0
    rows, dim = base.shape
    if (a.shape, b.shape) != (((rank, rows), (dim, rank)) if embedding else ((rank, dim), (rows, rank))) or not rank:
        raise Unread(f"has the shape {base.shape}, to which those of LoRA, {a.shape} and {b.shape}, do not fit")

    @cache
    def factor(entry: Entry) -> np.ndarray:
        return entry.array(range(entry.shape[0])).astype(np.float32)

    def change(values: np.ndarray, chosen: Chosen) -> np.ndarray:
        if embedding:
            own = factor(a)[:, chosen.start : chosen.stop] if isinstance(chosen, range) else factor(a)[:, chosen]
            added = own.T @ factor(b).T
        else:
            added = b.array(chosen).astype(np.float32) @ factor(a)
        total: np.ndarray = values + scaling * added
        return total

    return change


def _scaling(module: str, a: Entry, settings: Json, embedding: bool) -> np.float32:
    """Return the factor of LoRA's product, as PEFT computes it of the configuration."""
    kind, rank = settings.get("peft_type"), a.shape[0] if a.shape else 0
    # An embedding's product is always transposed, whatever fan_in_fan_out says.
    other = [key for key in _OTHER_RULES if settings.get(key) and not (embedding and key == "fan_in_fan_out")]
    if kind != "LORA" or other:
        raise Unread(f"is changed by {other[0] if other else kind} of PEFT, whose rule is not known here")
    patterns = settings.get("alpha_pattern") or {}
    alpha = settings.get("lora_alpha")
    path = module.removeprefix(_PREFIX)
    for pattern, value in patterns.items() if isinstance(patterns, Mapping) else ():
        # In PEFT it is a regular expression, which a hostile file could make endless.
        plain = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if not re.fullmatch(r"[\w.]+", plain):
            raise Unread(f"is scaled by the pattern {quoted(pattern)}, which is not followed here")
        if path == plain or (path.endswith(f".{plain}") and not pattern.startswith("^")):
            alpha = value
            break
    stated = settings.get("r")
    if not isinstance(alpha, int | float) or not rank or (stated != rank and not settings.get("rank_pattern")):
        raise Unread(f"has LoRA of rank {rank}, but its configuration states r={stated!r} and lora_alpha={alpha!r}")
    return np.float32(alpha / (rank**0.5 if settings.get("use_rslora") else rank))


def _replaced(module: str, base: Entry, new: Entry, settings: Json) -> Change:
    ids: Any = settings.get("token_indices", settings.get("trainable_token_indices"))
    if isinstance(ids, Mapping):
        path = module.removeprefix(_PREFIX)
        ids = next((own for name, own in ids.items() if path == name or path.endswith(f".{name}")), None)
        # A tied output projection has the rows of the table.
        ids = ids or next(iter(settings["trainable_token_indices"].values()), None)
    known = isinstance(ids, list) and all(is_whole_number(n) and n < base.shape[0] for n in ids)
    if not known or new.shape != (len(ids), base.shape[1]) or len(set(ids)) < len(ids):
        raise Unread(f"has {new.shape} trained rows, to which the token indices of its configuration do not fit")
    at = np.argsort(np.array(ids, np.int64))
    ordered = np.array(ids, np.int64)[at]

    def change(values: np.ndarray, chosen: Chosen) -> np.ndarray:
        numbers = np.asarray(chosen, np.int64)
        place = np.searchsorted(ordered, numbers)
        hit = np.flatnonzero((place < len(ordered)) & (ordered[np.minimum(place, len(ordered) - 1)] == numbers))
        values[hit] = new.array(at[place[hit]])
        return values

    return change
