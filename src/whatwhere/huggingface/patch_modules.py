"""Replacements for modules of Hugging Face: the same signatures and shapes, computed by this library."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from inspect import signature
from typing import Any, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.models.configuration.description import EmbeddingScale
from whatwhere.position.positions import Positions
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.input.learned import Learned
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary

_COMPARED_AT = (1, 64, 4095)
"""Positions at which a rotary module is compared with its configuration, besides twice the original length."""

# Rounding errors in float32 of a cosine, and of a frequency: a power, a product and a blend, each rounded.
_ROUNDED_VALUE, _ROUNDED_FREQUENCY = 1e-6, 4e-6

_NORM = "embed_norm"
"""Name of the norm inside a token table."""

Form = Literal["half", "interleaved", "single", "complex"]
"""Form of cos and sin: repeated for both features of a pair (half, interleaved); once (single); as complex numbers."""


class RotaryTables(nn.Module):
    """Compute cos and sin as a rotary module of Hugging Face does, multiplied by the magnitude.

    Angles are computed in float64, and cos and sin are rounded once; a cast of the model does not round frequencies.
    `schemes` has the scheme of each layer type, or one under ""; `dtype` None takes that of x.
    """

    def __init__(
        self,
        schemes: Mapping[str, Rotary | MultimodalRotary],
        form: Form = "half",
        regime_length: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.schemes, self.form, self.regime_length, self.dtype = dict(schemes), form, regime_length, dtype
        self.config: Any = None
        self.layer_types = list(schemes)  # which LFM3 asks its rotary module for

    @torch.no_grad()
    def forward(
        self, x: Tensor, position_ids: Integer[Tensor, "*axes batch tokens"], layer_type: str | None = None
    ) -> tuple[Float[Tensor, "batch tokens features"], Float[Tensor, "batch tokens features"]] | Tensor:
        """Compute cos and sin of positions, or both as one complex tensor; of x only the dtype is used."""
        scheme = self.schemes.get(layer_type or "", next(iter(self.schemes.values())))
        index = position_ids.long()
        index = index if index.dim() == 3 else index[None]
        positions = Positions(index, index[0])
        lengths: Tensor | int | None = None
        if scheme.follows_length:
            length = index.amax() + 1 if self.regime_length is None else index.new_tensor(self.regime_length)
            lengths = length.expand(index.shape[1:])
        cos, sin = (part[:, 0] for part in scheme.bind(positions, lengths))  # (batch, tokens, pairs)
        if isinstance(scheme, Rotary) and scheme.reversed:  # the attention itself takes angles as negative ones
            sin = -sin
        if self.form == "complex":
            return torch.complex(cos, sin)
        dtype = x.dtype if self.dtype is None else self.dtype
        return self.repeat(cos.to(dtype)), self.repeat(sin.to(dtype))

    def repeat(self, part: Float[Tensor, "*batch pairs"]) -> Float[Tensor, "*batch features"]:
        """Repeat the values of pairs for their features, in this form."""
        if self.form == "half":
            return torch.cat([part, part], dim=-1)
        return part.repeat_interleave(2, dim=-1) if self.form == "interleaved" else part

    def extra_repr(self) -> str:
        """Return the schemes."""
        return ", ".join(f"{kind or 'all'}={type(scheme).__name__}" for kind, scheme in self.schemes.items())


def with_method(kind: type[nn.Module], name: str, method: Callable[..., Any], below: bool = False) -> type[nn.Module]:
    """Return a class of modules of transformers with a method of ours, under the name that it has there.

    A module of it is bound to itself alone, so a copy reads its own parameters, and it can be pickled. `below` is for a
    method of nn.Embedding that the class calls by `super()`.
    """
    own = type(name, (nn.Embedding if below else nn.Module,), {name: method})
    bases = (kind, own) if below else (own, kind)
    made = {"__module__": kind.__module__, "__reduce__": _reduced, "replaced_method": (kind, name, method, below)}
    return type(kind.__name__, bases, made)


def _reduced(module: Any) -> tuple[Any, ...]:
    return _without_state, module.replaced_method, vars(module)


def _without_state(kind: type[nn.Module], name: str, method: Callable[..., Any], below: bool) -> nn.Module:
    made = with_method(kind, name, method, below)
    return made.__new__(made)


def rotary_tables(
    original: nn.Module, schemes: Mapping[str, Rotary | MultimodalRotary], regime_length: int | None
) -> RotaryTables:
    """Return the replacement of a rotary module, after comparing cos and sin of both.

    Raises:
        CheckpointError: If its cos or sin differ from those of the schemes.
    """
    if "layer_type" not in signature(original.forward).parameters:
        schemes = {"": next(iter(schemes.values()))}
    if any(buffer.is_meta for buffer in original.buffers()):
        raise CheckpointError(
            f"this model's {type(original).__name__} is on the meta device and has no values to compare.\n"
            "Load the model first, then patch it."
        )
    # A copy is called, because some have state.
    probe, (layer_type, scheme) = deepcopy(original).to("cpu"), next(iter(schemes.items()))
    with torch.device("cpu"):
        at = torch.ones(1, 1, dtype=torch.long)
        form = _form(_call(probe, layer_type, at)[-1], scheme.rotary_dim // 2)
        dtype = _call(probe, layer_type, at, torch.bfloat16)[-1].dtype
        tables = RotaryTables(schemes, form, dtype=None if dtype == torch.bfloat16 else dtype)
        for layer_type, scheme in schemes.items():
            _require_same_rotation(probe, tables, layer_type, scheme)
    tables.regime_length = regime_length
    tables.config = getattr(original, "config", None)  # of which Granite with windows asks the theta
    return tables.train(original.training)


def _call(module: nn.Module, layer_type: str, index: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Return cos and sin of a rotary module or its replacement for a layer type, or one complex tensor."""
    x = torch.zeros(1, dtype=dtype)
    out: Tensor | tuple[Tensor, Tensor] = module(x, index, layer_type) if layer_type else module(x, index)
    return (out,) if isinstance(out, Tensor) else out


def _form(part: Tensor, pairs: int) -> Form:
    """Return the form of a sine, or of a complex tensor; the cosine of a small angle is rounded to 1."""
    if part.is_complex():
        return "complex"
    if part.shape[-1] == pairs:
        return "single"
    return "half" if part[..., :pairs].equal(part[..., pairs:]) else "interleaved"


def _require_same_rotation(
    original: nn.Module, ours: RotaryTables, layer_type: str, scheme: Rotary | MultimodalRotary
) -> None:
    """Raise CheckpointError if cos or sin of a layer type differ by more than rounding errors at some position."""
    original_length: int | None = getattr(scheme.scaling, "original_length", None)
    axes = torch.arange(1, (scheme.axes if isinstance(scheme, MultimodalRotary) else 1) + 1)
    # In ascending order: dynamic frequencies depend on the longest call so far.
    for position in sorted({*_COMPARED_AT, *([] if original_length is None else [2 * original_length])}):
        index = (position // axes)[:, None, None] if len(axes) > 1 else torch.tensor([[position]])
        parts = (_call(module, layer_type, index) for module in (original, ours))
        theirs, expected = (torch.complex(*map(Tensor.float, each)) if len(each) > 1 else each[0] for each in parts)
        allowed = ours.repeat(_rounding(original, scheme, position))
        if theirs.shape != expected.shape:
            reason = f"it returns {theirs.shape[-1]} features, not {expected.shape[-1]}"
        elif not bool(((theirs - expected).abs() <= allowed).all()):  # False for NaN too
            where = f" in layers of type {layer_type!r}" if layer_type else ""
            difference = float((theirs - expected).abs().max())
            reason = f"at position {position:,}{where} its cos and sin are {difference:.2g} away"
        else:
            continue
        raise CheckpointError(
            f"this model's {type(original).__name__} does not rotate as its configuration states: {reason}.\n"
            "If its frequencies or its configuration were changed after loading, or frequencies were rounded by a cast "
            "to bfloat16 or\nfloat16 and back, make both agree: load the model again in the configuration and dtype "
            "you want."
        )


def _rounding(original: nn.Module, scheme: Rotary | MultimodalRotary, position: int) -> Float[Tensor, " pairs"]:
    """Return the difference that rounded frequencies, as after a cast, may cause in each pair at a position."""
    types = [torch.finfo(buffer.dtype) for buffer in original.buffers() if buffer.is_floating_point()]
    relative = max([_ROUNDED_FREQUENCY, *(info.eps for info in types)])
    absolute = max([0.0, *(info.tiny * info.eps for info in types)])  # the smallest step of float16 is 6e-8
    frequencies = scheme.frequencies(torch.tensor(position + 1)).abs()
    return scheme.magnitude * (_ROUNDED_VALUE + position * (relative * frequencies + absolute)).float()


def token_table(original: nn.Embedding, scale: EmbeddingScale | None, scaled: bool) -> TokenEmbedding:
    """Return a token table that shares the parameter of another.

    Args:
        scaled: whether the table itself multiplies by it, rather than the model afterwards.

    Raises:
        CheckpointError: If it multiplies by another factor.
    """
    rows, dim = original.weight.shape
    table = TokenEmbedding(rows, dim, scale=scale if scaled else None, padding_idx=original.padding_idx, device="meta")
    table.weight = original.weight
    if normed(original):
        table.embed_norm = original.get_submodule(_NORM)
        table.register_forward_hook(_with_norm)
    if scaled and not original.weight.is_meta:
        ids = torch.tensor([0, rows // 2, rows - 1], device=original.weight.device)
        with torch.no_grad():
            theirs, ours = original(ids), table(ids)
        if not torch.allclose(theirs, ours, rtol=0, atol=0, equal_nan=True):
            raise CheckpointError(
                f"this model's {type(original).__name__} does not scale its rows as its configuration states, by "
                f"{table.factor}.\nA cast to bfloat16 and back rounds its scale: load the model in the dtype you want."
            )
    return table.train(original.training)


def normed(table: nn.Module) -> bool:
    """Return whether a token table is of a class in transformers that norms what it looks up, as Inkling's does."""
    kind = type(table)
    return (
        kind.__module__.startswith("transformers.")
        and kind.__name__.endswith("NormedEmbedding")
        and _NORM in vars(table).get("_modules", {})
    )


def _with_norm(table: nn.Module, args: tuple[Tensor], rows: Tensor) -> Tensor:
    normed: Tensor = table.get_submodule(_NORM)(rows)
    return normed


def position_table(original: nn.Embedding) -> Learned:
    """Return a position table that shares the parameter of another; a padding row has no gradient."""
    rows, dim = original.weight.shape
    table = Learned(dim, rows, device="meta")
    table.weight = original.weight
    if original.padding_idx is not None:
        table.register_forward_hook(partial(_without_gradient, original.padding_idx))
    return table.train(original.training)


def _without_gradient(padding: int, module: nn.Module, args: tuple[Tensor], rows: Tensor) -> Tensor:
    return torch.where((args[0] == padding)[..., None], rows.detach(), rows)
