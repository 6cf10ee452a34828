"""Tensors that a file stores in parts, each shown as the one that the model has; its rows are computed when read.

Parts are codes and their scales, a base and what an adapter adds to it, or the shared rows and the mapping of
model2vec. Of quantized weights outside GGUF those are read whose rule is public: MLX's affine codes, and numbers of 8
bits with a scale for the tensor, for each row, group or block. All others are refused by name, so that codes are never
read as rows.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Chosen, Combined, Contents, Entry
from whatwhere.models.checkpoint.files import is_whole_number, parse_json, read_json
from whatwhere.models.checkpoint.names import OUTPUT_PROJECTIONS, TOKENS
from whatwhere.models.configuration.keys import Json
from whatwhere.what.token_ids import nested_configs

MERGE = "Merge the two: model.merge_and_unload().save_pretrained(FOLDER)."
PASS_BASE = (
    f"To read it pass its base, --base FOLDER, or base=FOLDER in Python. To change it: {MERGE[0].lower()}{MERGE[1:]}"
)
_MOST = 1 << 30  # numbers of a table behind a mapping, of which a small file could claim any number
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
_KEEP_BASE = ("true", "false", "none", "gaussian", "orthogonal", "eva", "mica")
_KEEP_EMBEDDING = ("pissa", "olora", "corda", "lora_ga")
"""Values of init_lora_weights that leave the base as it is, and those that do so in an embedding alone."""


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
    """Return contents in which the table of model2vec has a row for each token: embeddings[mapping[i]] * weights[i]."""
    # Its numbers of 8 bits are the numbers that the model averages, without a scale.
    table, mapping, weights = (contents.entries.get(name) for name in ("embeddings", "mapping", "weights"))
    config = contents.config or {}
    ours = config.get("model_type") == "model2vec" or mapping is not None
    if not ours or table is None or len(table.shape) != 2 or (mapping is weights is None and table.dtype != "int8"):
        return contents
    rows = (mapping or weights or table).shape[0] if (mapping or weights or table).shape else 0
    parts = [entry for entry in (table, mapping, weights) if entry is not None]
    fits = all(entry.shape == (rows,) for entry in parts[1:]) and (mapping is not None or rows == table.shape[0])
    if not fits or (mapping is not None and ("int" not in mapping.dtype or rows * table.shape[1] > _MOST)):
        given = ", ".join(f"{entry.name} {entry.dtype} {entry.shape}" for entry in parts)
        raise CheckpointError(
            f"{table.file}: the tensors of model2vec contradict each other, or make more than {_MOST:,} numbers: "
            f"{given}.\n`mapping` has a whole number and `weights` a factor for each token: save the model again."
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

    label = table.dtype if mapping is None else f"{table.dtype}, shared by tokens"
    dtype = f"{label}{', weighted' if weights else ''}"
    named = ", ".join(one.name for one in parts)
    why = f"is stored in {len(parts)} tensors of model2vec ({named}), which are not changed together"
    learned = prod(table.shape) + (rows if weights else 0)
    way_out = "Distill the model again with the tokens it needs."
    whole = Combined.of(table.name, (rows, table.shape[1]), dtype, parts, read, why, way_out, learned)
    return with_combined(contents, {table.name: whole})


# Adapters of PEFT. LoRA adds scaling * (B A), transposed for an embedding, with scaling = alpha / r, or alpha / sqrt(r)
# of rank-stabilized LoRA. Trainable tokens replace rows. A module that is saved whole replaces its base.


def adapter_settings(contents: Contents, path: Path) -> Json | None:
    """Return the configuration of an adapter, which may be empty; None of a model."""
    if not any(_MARK.search(name) or name.startswith(_PREFIX) for name in contents.entries):
        return None
    config = (path if path.is_dir() else path.parent) / _CONFIG
    return read_json(config, _MAX_CONFIG_BYTES) if config.is_file() else {}


def stated_base(settings: Json) -> str:
    """Return the name or path of the base that PEFT, or MLX, states; "" where none is."""
    base = settings.get("base_model_name_or_path", settings.get("model"))
    return base if isinstance(base, str) else ""


def adapted(contents: Contents, settings: Json, base: Contents | None = None, tied: str | None = None) -> Contents:
    """Return the contents of an adapter, or of its base where it is known, with the tables that the two make."""
    # A base may be in the same file; `tied` is the table of `base` that is its output projection too.
    known = _Modules(contents, base, tied)
    parts: dict[str, dict[str, Entry]] = {}
    for name, entry in contents.entries.items():
        if (module := known.module_of(name)) is not None:
            parts.setdefault(module, {})[name[len(module) + 1 :]] = entry
    found: dict[str, Entry] = {}
    for module, own in parts.items():
        target, stored = known.target(module)
        if stored is not None and not any(_is_base(end) for end in own):
            own["base_layer.weight"] = stored
        weights = {end: entry for end, entry in own.items() if not end.endswith("bias")}
        if weights.keys() != {"base_layer.weight"}:
            found[target] = _merged(module, target, weights, settings)
        if base is not None and len(own) > len(weights):
            found |= _biases(target, [own[end] for end in own if end not in weights], base)
    title = f"an adapter of {quoted(name)}" if (name := stated_base(settings)) else "an adapter of a base not stated"
    if base is None:
        combined = {name: one for name, one in found.items() if isinstance(one, Combined)}
        return replace(with_combined(contents, combined), adapter=title)
    known.require_tables(title)
    table = found.get(tied or "")
    if isinstance(table, Combined) and known.output not in found and not any("tokens_delta" in p for p in table.parts):
        why = f"is tied to {quoted(table.name)} in the base, whose rows compute logits until the adapter is merged"
        one = Combined(known.output, table.shape, table.dtype, 0, table.file, (), None, why, MERGE, 0)
        found[known.output] = one  # PEFT changes trained tokens in both
    left = {name: one for name, one in contents.entries.items() if known.module_of(name) is None}
    return replace(
        base,
        entries={**base.entries, **found, **left},
        words=lambda: contents.words() or base.words(),
        tokenizer=lambda: base.tokenizer() if isinstance(own := contents.tokenizer(), str) else own,
        config=contents.config or base.config,
        adapter=title,
    )


def _is_base(end: str) -> bool:
    return end == "weight" or _BASE.match(f"m.{end}") is not None


class _Modules:
    """The modules that an adapter changes: their names in its file, and those of their weights in the base."""

    def __init__(self, contents: Contents, base: Contents | None, tied: str | None) -> None:
        self.entries, self.base, self.tied = contents.entries, base, tied
        self.in_file = {match[1] for name in contents.entries if (match := _BASE.match(name)) is not None}
        self.output = OUTPUT_PROJECTIONS[0]
        self.by_end: dict[str, str | None] = {}  # None where several have it
        for name in {} if base is None else base.entries:
            for end in _ends(name):
                self.by_end[end] = name if self.by_end.get(end, name) == name else None

    def module_of(self, name: str) -> str | None:
        """Return the module that a tensor of the adapter belongs to."""
        begins = [name[: dot.start()] for dot in re.finditer(r"\.", name)]
        return next((begin for begin in begins[::-1] if any(self.target(begin))), None)

    def target(self, module: str) -> tuple[str, Entry | None]:
        """Return the name of a module's weight, and that weight in the base; "" and None of no module."""
        weight = f"{module.removeprefix(_PREFIX)}.weight"
        if self.base is not None:
            exact = [weight, self.by_end.get(weight), *_ends(weight)]
            if (name := next((name for name in exact if name in self.base.entries), None)) is not None:
                return name, self.base.entries[name]
            if self.tied is not None and f".{weight}".endswith(tuple(f".{end}" for end in OUTPUT_PROJECTIONS)):
                self.output = weight
                return weight, self.base.entries[self.tied]
        return (f"{module}.weight", None) if module in self.in_file else ("", None)

    def require_tables(self, title: str) -> None:
        """Raise CheckpointError if the base does not have the tables, or nothing, of what the adapter changes."""
        outside = [name for name in self.entries if name.startswith(_PREFIX) and self.module_of(name) is None]
        tables = tuple(f".{end.removesuffix('.weight')}." for end in (*TOKENS, *OUTPUT_PROJECTIONS))
        wrong = [name for name in outside if any(end in name for end in tables)]
        if wrong := wrong or (outside if len(outside) == len(self.entries) else []):
            raise CheckpointError(
                f"{quoted(wrong[0])} of {title} changes a module that its base does not have.\n"
                "Pass the base on which it was trained."
            )


def _ends(name: str) -> list[str]:
    return [name, *(name[dot.end() :] for dot in re.finditer(r"\.", name))]


def _merged(module: str, name: str, own: Mapping[str, Entry], settings: Json) -> Entry:
    """Return the weight of a module: its base with what the adapter changes, or the one that is saved whole."""
    whole = [end for end in own if end.startswith("modules_to_save.") and end.endswith(".weight")]
    whole = whole or [end for end in own if end == "weight"]
    bases = whole or [end for end in own if _is_base(end)]
    base = own[bases[0]]
    if whole and len(base.shape) != 2:
        return replace(base, name=name)
    changes = {end: entry for end, entry in own.items() if end not in bases}
    rows: Callable[[Chosen], np.ndarray] | None = None
    try:
        if len(bases) != 1 or len(base.shape) != 2:
            raise Unread(f"is changed by {len(bases)} adapters, or has {len(base.shape)} dimensions")
        change = None if whole else _change(module, base, changes, settings)
        rows = base.array if change is None else lambda chosen: change(base.array(chosen), chosen)
        why = "is made of a base and what an adapter changes"
    except Unread as problem:
        why = str(problem)
    shape = base.shape if len(base.shape) == 2 else (*base.shape, 1, 1)[:2]
    return Combined.of(name, shape, f"{base.dtype}, adapted", [base, *changes.values()], rows, why, MERGE)


def _biases(target: str, own: Sequence[Entry], base: Contents) -> dict[str, Entry]:
    """Return the bias of a module, which an adapter has trained, or changes by a rule that is not followed."""
    name = f"{target.removesuffix('.weight')}.bias"
    stored = base.entries.get(name)
    if stored is None or (len(own) == 1 and own[0].shape == stored.shape and "lora_" not in own[0].name):
        return {name: replace(own[0], name=name)}
    why = "is changed by an adapter, whose rule for it is not known here"
    return {name: Combined.of(name, stored.shape, stored.dtype, [stored, *own], None, why, MERGE)}


Change = Callable[[np.ndarray, Chosen], np.ndarray]  # changes rows of a base, given their numbers


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
    for begin in ("lora_embedding_", "lora_"):
        if kinds.keys() == {f"{begin}A", f"{begin}B"}:
            return _added(module, base, kinds[f"{begin}A"], kinds[f"{begin}B"], settings, begin != "lora_")
    raise Unread(f"is changed by {', '.join(sorted(kinds))} together, whose rule is not known here")


def _added(module: str, base: Entry, a: Entry, b: Entry, settings: Json, embedding: bool) -> Change:
    scaling = _scaling(module, a, settings, embedding)
    start = str(settings.get("init_lora_weights", True)).lower()
    kept = start in _KEEP_BASE or (embedding and start.startswith(_KEEP_EMBEDDING))
    if not kept and not _BASE.match(base.name):  # a base that is saved with the adapter is the changed one
        raise Unread(f"is changed by LoRA with init_lora_weights={start[:40]!r}, by which PEFT changes its base too")
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
    alpha: Any = settings.get("lora_alpha")
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
    numbers = isinstance(alpha, int | float) and not any(isinstance(one, bool) for one in (alpha, stated))
    if not (numbers and abs(alpha) < 1e30 and rank and (stated == rank or settings.get("rank_pattern"))):
        given = f"r={repr(stated)[:40]} and lora_alpha={repr(alpha)[:40]}"
        raise Unread(f"has LoRA of rank {rank}, but its configuration states {given}")
    return np.float32(alpha / (rank**0.5 if settings.get("use_rslora") else rank))


def _replaced(module: str, base: Entry, new: Entry, settings: Json) -> Change:
    named = settings.get("trainable_token_indices")
    ids: Any = settings.get("token_indices", named)
    if ids is named and isinstance(named, Mapping):
        path = module.removeprefix(_PREFIX)
        ids = next((own for name, own in named.items() if path == name or path.endswith(f".{name}")), None)
        # A tied output projection has the rows of the table.
        ids = next(iter(named.values()), None) if ids is None else ids
    known = isinstance(ids, list) and bool(ids) and all(is_whole_number(n) and n < base.shape[0] for n in ids)
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


# Quantized weights: their layouts are known by the names and types of the tensors beside the codes

_Rows = Callable[[Chosen], np.ndarray]

_CODES = (
    "weight", "qweight", "weight_packed", "weight_blocks", "W_q", "weight._data", "weight._data._data", "codes",
    "weight_qdata", "_weight_qdata", "weight:_data", "weight:qdata",
)  # fmt: skip
"""Ends of the names of codes, behind the name of the module."""
_SCALES = ("weight_scale_inv", "weight_scale", "scale_weight")
_OF_ACTIVATIONS = (
    "bias", "input_scale", "activation_scale", "activation_scale_ub", "input_scale_ub", "output_scale", "scale_input",
    "k_scale", "v_scale", "comfy_quant",
)  # fmt: skip
"""Tensors beside codes that do not change the weight."""
_REFUSED = {
    "weight_scale_2": "NVFP4", "weight_global_scale": "NVFP4", "weight_blocks": "MXFP4", "blocks": "MXFP4",
    "weight_scales": "EETQ",
    "weight_packed": "compressed-tensors", "weight_shape": "compressed-tensors",
    "weight_zero_point": "compressed-tensors with zero points", "qzeros": "GPTQ or AWQ", "qweight": "GPTQ or AWQ",
    "weight._data": "quanto", "weight._data._data": "quanto", "weight._scale": "quanto", "SCB": "bitsandbytes",
    "weight.SCB": "bitsandbytes", "weight.absmax": "bitsandbytes", "weight.quant_map": "bitsandbytes",
    "W_q": "HQQ", "codes": "AQLM", "weight_qdata": "torchao", "_weight_qdata": "torchao", "weight:_data": "torchao",
    "weight:qdata": "torchao",
}  # fmt: skip
"""A tensor beside the codes, or the codes themselves -> the layout, whose rule is not followed here."""
_CODED = ("int", "uint", "bool", "float8", "float4_", "float6_")  # how the types of codes begin
_BITS = (2, 3, 4, 5, 6, 8)
_QUANT_STATE = "weight.quant_state.bitsandbytes__"
_MAX_STATE_BYTES = 1 << 14


@dataclass(frozen=True, eq=False)
class _Module:
    name: str
    codes: Entry
    beside: Mapping[str, Entry]
    settings: Mapping[str, Any]

    @property
    def end(self) -> str:
        return self.codes.name[len(self.name) + 1 :]

    @property
    def is_quantized(self) -> bool:
        """Whether the weight is not simply its numbers: those of 8 bits need no scale where none is stated."""
        known = any(end in _REFUSED for end in (*self.beside, self.end))
        if self.codes.dtype.startswith("float8"):
            return known or bool(self.settings or self.beside.keys() - set(_OF_ACTIVATIONS))
        return known or len(self.codes.shape) == 2

    def read(self, entry: Entry, rows: Chosen) -> np.ndarray:
        return np.atleast_1d(entry.array(rows if entry.shape else None))


def quantized(contents: Contents) -> Contents:
    """Return contents with quantized weights as one tensor each, whose rows are numbers."""
    found = {}
    for module in _modules(contents):
        parts = (module.codes, *(entry for end, entry in module.beside.items() if end != "bias"))
        name = f"{module.name}.weight"
        shape, dtype, rows, why = _layout(module)
        found[name] = Combined.of(name, shape, dtype, parts, rows, why)
    return with_combined(contents, found)


def _modules(contents: Contents) -> list[_Module]:
    settings = _settings(contents)
    codes: dict[str, Entry] = {}
    for name, entry in contents.entries.items():
        end = next((end for end in _CODES if name.endswith(f".{end}")), None)
        if end is not None and len(entry.shape) in (1, 2) and (end != "weight" or entry.dtype.startswith(_CODED)):
            codes[name.removesuffix(f".{end}")] = entry
        if name.endswith("_blocks") and len(entry.shape) == 3 and entry.dtype == "uint8":  # rows, groups, bytes
            codes[name.removesuffix("_blocks").removesuffix(".weight")] = entry
    beside: dict[str, dict[str, Entry]] = {name: {} for name in codes}
    for name, entry in contents.entries.items():
        # The end of a name is what follows its module: "absmax" of "embed_tokens.weight.absmax" is "weight.absmax".
        before, _, last = name.rpartition(".")
        own, _, weight = before.partition(".weight") if ".weight" in before else (before, "", None)
        end = last if weight is None else f"weight{weight}.{last}"
        own, end = (name.removesuffix("_scales"), "scales") if name.removesuffix("_scales") in codes else (own, end)
        if own in codes and entry is not codes[own]:
            beside[own][end] = entry
    return [one for name, entry in codes.items() if (one := _Module(name, entry, beside[name], settings)).is_quantized]


def _settings(contents: Contents) -> Mapping[str, Any]:
    for part in nested_configs(contents.config or {}):
        for key in ("quantization", "quantization_config"):  # MLX writes both
            if isinstance(settings := part.get(key), Mapping):
                return settings
    return {}


def _layout(module: _Module) -> tuple[tuple[int, ...], str, _Rows | None, str]:
    """Return the shape, type and rule of a weight, and how it is stored or why its rows are not known."""
    codes, beside = module.codes, module.beside
    try:
        if codes.dtype == "uint32" and "scales" in beside:
            return _affine(module)
        unknown = [end for end in beside if end not in (*_SCALES, *_OF_ACTIVATIONS)]
        layout = next((_REFUSED[end] for end in (module.end, *beside) if end in _REFUSED), None)
        if layout is not None:
            raise Unread(f"is quantized by {layout} ({codes.dtype} codes), which is not dequantized here")
        stated = module.settings.get("quant_method")
        by = f", by {stated}" if isinstance(stated, str) else ""
        if codes.dtype not in ("int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz") or unknown:
            others = f" beside {', '.join(sorted(unknown)[:3])}" if unknown else ""
            raise Unread(f"holds codes of the type {codes.dtype}{others}{by}, whose rule is not known here")
        if codes.dtype == "int8" and module.settings.get("bits", 8) != 8:
            raise Unread(f"holds int8{by}, but the configuration states {module.settings['bits']} bits")
        return _scaled(module, by)
    except Unread as problem:
        return _shape_of_unread(module), f"{codes.dtype} codes", None, str(problem)


# MLX: codes of some bits in a stream of words, with a scale and a bias for each group of a row


def _affine(module: _Module) -> tuple[tuple[int, ...], str, _Rows, str]:
    codes, scales = module.codes, module.beside["scales"]
    own = module.settings.get(module.name, {})
    if own is False:
        raise Unread("has scales of MLX, but by the configuration it is not quantized")
    settings = {**module.settings, **(own if isinstance(own, Mapping) else {})}
    mode, bits, group = settings.get("mode", "affine"), settings.get("bits"), settings.get("group_size")
    biases = module.beside.get("biases", module.beside.get("qbiases"))
    if mode != "affine" or biases is None:
        raise Unread(f"is quantized by MLX's mode {str(mode)[:20]!r}, which is not dequantized here")
    if bits not in _BITS or not is_whole_number(group) or not group or isinstance(bits, bool):
        raise Unread("has codes of MLX, but config.json does not state their bits and group_size as MLX writes them")
    rows, words = codes.shape
    groups = scales.shape[-1] if scales.shape else 0
    dim = groups * group
    if scales.shape != (rows, groups) or biases.shape != scales.shape or words * 32 != dim * bits or dim % 8:
        raise Unread(
            f"has {rows:,} rows of {words:,} words, which contradict its scales {scales.shape} and biases "
            f"{biases.shape}: {bits} bits in groups of {group} are stated"
        )

    def read(chosen: Chosen) -> np.ndarray:
        # Eight codes fill as many bytes as each has bits, the lowest bits first.
        octets = np.zeros((len(chosen) * dim // 8, 8), np.uint8)
        octets[:, :bits] = module.read(codes, chosen).astype("<u4").view(np.uint8).reshape(-1, bits)
        whole = octets.view("<u8") >> np.arange(0, 8 * bits, bits, dtype=np.uint64) & np.uint64((1 << bits) - 1)
        values = whole.astype(np.float32).reshape(len(chosen), groups, group)
        values *= module.read(scales, chosen)[..., None]
        values += module.read(biases, chosen)[..., None]
        return values.reshape(len(chosen), dim)

    return (rows, dim), f"{bits} bits of MLX", read, f"is stored as codes of {bits} bits with scales and biases of MLX"


# Numbers of 8 bits times a scale


def _scaled(module: _Module, by: str) -> tuple[tuple[int, ...], str, _Rows, str]:
    codes = module.codes
    found = [end for end in _SCALES if end in module.beside]
    if len(found) != 1:
        raise Unread(f"holds codes of the type {codes.dtype}{by}, and {len(found)} scales beside them, not one")
    scale = module.beside[found[0]]
    block = _block(module, scale)
    if "float" not in scale.dtype:
        raise Unread(f"has a scale of the type {scale.dtype}, whose rule is not known here")
    rows, dim = codes.shape

    def read(chosen: Chosen) -> np.ndarray:
        own, back = np.unique(np.asarray(chosen, np.int64) // block[0], return_inverse=True)
        factors = module.read(scale, own if scale.shape else range(1)).astype(np.float32).reshape(len(own), -1)
        factors = np.repeat(factors, block[1], axis=1)[:, :dim] if factors.shape[1] > 1 else factors
        return module.read(codes, chosen).astype(np.float32) * factors[back]

    return (rows, dim), f"{codes.dtype} with a scale", read, f"is stored as {codes.dtype} with {found[0]}"


def _block(module: _Module, scale: Entry) -> tuple[int, int]:
    (rows, dim), shape = module.codes.shape, scale.shape
    if prod(shape) == 1:
        return max(rows, 1), max(dim, 1)
    if shape in ((rows,), (rows, 1)):
        return 1, max(dim, 1)
    stated = module.settings.get("weight_block_size") or (128, 128)
    if _is_pair(stated) and all(stated) and shape == (ceil(rows / stated[0]), ceil(dim / stated[1])):
        return stated[0], stated[1]
    if len(shape) == 2 and shape[0] == rows and shape[1] and dim % shape[1] == 0:
        return 1, dim // shape[1]
    raise Unread(f"has the shape {module.codes.shape}, to which its scale of the shape {shape} does not fit")


def _is_pair(stated: object) -> bool:
    return isinstance(stated, list | tuple) and len(stated) == 2 and all(map(is_whole_number, stated))


# What is known of the shapes of the others


def _shape_of_unread(module: _Module) -> tuple[int, ...]:
    """Return the shape of the weight where the file states it, or else that of its codes."""
    codes, beside, settings = module.codes, module.beside, module.settings
    rows, columns = codes.shape[0], prod(codes.shape[1:])
    bits = settings.get("bits") if settings.get("bits") in _BITS else 4
    if module.end == "qweight" and len(shape := beside.get("scales", codes).shape) == 2:
        packed = 32 // int(bits or 4)  # GPTQ packs columns of the weight, and AWQ its rows
        return (shape[1], rows * packed if shape[1] == columns else rows)
    if codes.dtype == "uint32" and "scales" in beside:
        return rows, columns * 32 // int(bits or 4)
    if len(codes.shape) == 3 or (codes.dtype == "uint8" and {"weight_scale_2", "weight_global_scale"} & beside.keys()):
        return rows, 2 * columns  # two numbers of four bits in each byte
    try:
        if (shape := beside.get("weight_shape", codes).shape) == (2,):
            stated = module.read(beside["weight_shape"], range(2)).tolist()
        else:
            state = next(entry for end, entry in beside.items() if end.startswith(_QUANT_STATE))
            text = bytes(module.read(state, range(min(prod(state.shape), _MAX_STATE_BYTES))).astype(np.uint8))
            stated = parse_json(text, state.name).get("shape")
        if _is_pair(stated) and prod(stated) <= 64 * max(codes.bytes, 1):
            return tuple(stated)
    except (CheckpointError, StopIteration):
        pass
    return rows, columns
