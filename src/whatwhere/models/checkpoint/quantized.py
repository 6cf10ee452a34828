"""Quantized weights outside GGUF: their layouts, known by the names and types of the tensors beside the codes.

Read are those whose rule is public: MLX's affine codes, and numbers of 8 bits with a scale for the tensor, for each
row, group or block. All others are refused by name, so that codes are never read as rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint.base import Chosen, Combined, Contents, Entry
from whatwhere.models.checkpoint.combined import Unread, with_combined
from whatwhere.models.checkpoint.files import is_whole_number, parse_json
from whatwhere.what.token_ids import nested_configs

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
_CODED = ("int", "uint", "bool", "float8", "float4", "float6")
"""How the types of codes begin."""
_BITS = (2, 3, 4, 5, 6, 8)
_DEFAULT_BLOCK = (128, 128)
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
        """The end of the name of the codes."""
        return self.codes.name[len(self.name) + 1 :]

    @property
    def is_quantized(self) -> bool:
        """Whether the weight is not simply its numbers: those of 8 bits need no scale where none is stated."""
        known = any(end in _REFUSED for end in (*self.beside, self.end))
        if self.codes.dtype.startswith("float8"):
            return known or bool(self.settings or self.beside.keys() - set(_OF_ACTIVATIONS))
        return known or len(self.codes.shape) == 2

    def read(self, entry: Entry, rows: Chosen) -> np.ndarray:
        """Return rows of a tensor; a scalar has one."""
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
    return [
        module for name, entry in codes.items() if (module := _Module(name, entry, beside[name], settings)).is_quantized
    ]


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
    stated = module.settings.get("weight_block_size") or _DEFAULT_BLOCK
    whole = isinstance(stated, list | tuple) and len(stated) == 2 and all(is_whole_number(n) and n for n in stated)
    if whole and shape == (ceil(rows / stated[0]), ceil(dim / stated[1])):
        return stated[0], stated[1]
    if len(shape) == 2 and shape[0] == rows and shape[1] and dim % shape[1] == 0:
        return 1, dim // shape[1]
    raise Unread(f"has the shape {module.codes.shape}, to which its scale of the shape {shape} does not fit")


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
        whole = isinstance(stated, list) and len(stated) == 2 and all(is_whole_number(n) for n in stated)
        if whole and prod(stated) <= 64 * max(codes.bytes, 1):
            return tuple(stated)
    except (CheckpointError, StopIteration):
        pass
    return rows, columns
