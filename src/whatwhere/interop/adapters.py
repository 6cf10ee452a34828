"""Stand in for modules of Hugging Face: the same calls, the same shapes, our numbers."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.ruler import Positions
from whatwhere.what.embedding import Scale, TokenEmbedding
from whatwhere.where.doors import ScoreBias, tabulate
from whatwhere.where.input.learned import Learned
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.t5 import T5

# A model cast to bfloat16 has rounded frequencies, and is welcome: at position 1 they move a cosine by 4e-3 at most.
LARGEST_DIFFERENCE = 1e-2

Form = Literal["halves", "neighbors", "single", "complex"]
"""How cos and sin are handed over: twice for each pair, half a head apart or side by side; once; as one number."""


class RotaryTables(nn.Module):
    """Give cos and sin as a rotary module of Hugging Face does, in the type of x, with the magnitude.

    Angles are float64 and cos and sin are rounded once; nothing here can be rounded by a cast of the model.

    Args:
        kinds: the scheme of each kind of layer, or one under "".
        form: how they are handed over.
        regime_length: the length that DynamicNTK and LongRoPE shall assume; None is the longest of each call, as
            theirs.
    """

    def __init__(
        self, kinds: Mapping[str, Rotary | MultimodalRotary], form: Form = "halves", regime_length: int | None = None
    ) -> None:
        super().__init__()
        self.kinds, self.form, self.regime_length = dict(kinds), form, regime_length

    @torch.no_grad()
    def forward(
        self, x: Tensor, position_ids: Integer[Tensor, "*axes batch tokens"], layer_type: str | None = None
    ) -> tuple[Float[Tensor, "batch tokens features"], Float[Tensor, "batch tokens features"]] | Tensor:
        """Give cos and sin of some positions."""
        scheme = self.kinds.get(layer_type or "", next(iter(self.kinds.values())))
        index = position_ids.long()
        index = index if index.dim() == 3 else index[None]
        positions = Positions(index, index[0])
        lengths: Tensor | int | None = None
        if scheme.follows_length:
            reached = index.amax() + 1 if self.regime_length is None else index.new_tensor(self.regime_length)
            lengths = reached.expand(index.shape[1:])
        cos, sin = (part[:, 0] for part in scheme.bind(positions, lengths))  # (batch, tokens, pairs)
        if self.form == "complex":
            return torch.complex(cos, sin)
        cos, sin = (self._laid_out(part.to(x.dtype)) for part in (cos, sin))
        return cos, sin

    def extra_repr(self) -> str:
        """Show the schemes."""
        return ", ".join(f"{kind or 'all'}={type(scheme).__name__}" for kind, scheme in self.kinds.items())

    def _laid_out(self, part: Tensor) -> Tensor:
        if self.form == "halves":
            return torch.cat([part, part], dim=-1)
        return part.repeat_interleave(2, dim=-1) if self.form == "neighbors" else part


def rotary_tables(
    original: nn.Module, kinds: Mapping[str, Rotary | MultimodalRotary], regime_length: int | None
) -> RotaryTables:
    """Make what stands in for a rotary module, which is asked once how it hands its numbers over.

    Args:
        original: a rotary module of Hugging Face.
        kinds: the scheme of each kind of layer.
        regime_length: as in RotaryTables.
    """
    if "layer_type" not in signature(original.forward).parameters:
        kinds = {"": next(iter(kinds.values()))}
    kind, scheme = next(iter(kinds.items()))
    device = next((buffer.device for buffer in original.buffers()), torch.device("cpu"))
    x, at = torch.zeros(1, device=device), torch.ones(1, 1, dtype=torch.long, device=device)
    theirs = original(x, at, kind) if kind else original(x, at)
    cos = theirs if isinstance(theirs, Tensor) else theirs[0]
    made = RotaryTables(kinds, _form(cos, scheme.rotary_dim // 2), regime_length).train(original.training)
    ours = RotaryTables(kinds, made.form)(x, at, kind)
    difference = float(((ours if isinstance(ours, Tensor) else ours[0]) - cos).abs().max())
    if difference > LARGEST_DIFFERENCE:
        raise CheckpointError(
            f"this model's {type(original).__name__} turns otherwise than its configuration says: at position 1 a "
            f"cosine is {difference:.2g} away.\nIf its frequencies were changed by hand, change the configuration."
        )
    return made


def _form(cos: Tensor, pairs: int) -> Form:
    if cos.is_complex():
        return "complex"
    if cos.shape[-1] == pairs:
        return "single"
    return "halves" if cos[..., :pairs].equal(cos[..., pairs:]) else "neighbors"


def token_table(original: nn.Embedding, scale: float | Scale | None) -> TokenEmbedding:
    """Make a token table that shares the parameter of another.

    Args:
        original: a lookup of Hugging Face.
        scale: what it multiplies by itself; None if it does not, whatever the model does afterwards.
    """
    rows, dim = original.weight.shape
    table = TokenEmbedding(rows, dim, scale=scale, padding_id=original.padding_idx, device="meta")
    table.weight = original.weight
    return table.train(original.training)


def position_table(original: nn.Embedding) -> Learned:
    """Make a table of positions that shares the parameter of another; its rows are asked for by their number."""
    rows, dim = original.weight.shape
    table = Learned(dim, rows, device="meta")
    table.weight = original.weight
    return table.train(original.training)


def bucket_bias(attention: nn.Module, scheme: T5) -> Callable[..., Tensor]:
    """Give what stands in for `compute_bias` of T5's attention; it reads the attention's own table.

    Args:
        attention: the module.
        scheme: buckets of its kind.
    """

    def compute_bias(
        query_length: int,
        key_length: int,
        device: torch.device | None = None,
        past_seen_tokens: int | Tensor = 0,
        **others: Any,
    ) -> Float[Tensor, "1 heads queries keys"]:
        table = attention.get_parameter("relative_attention_bias.weight")
        scheme.weight = table
        where = table.device if device is None else device
        queries = torch.arange(query_length, device=where) + past_seen_tokens
        bias = _table(scheme, queries[None], torch.arange(key_length, device=where)[None])
        return bias.to(table.dtype)

    return compute_bias


def relative_alibi(
    scheme: ALiBi, mask: Tensor | None, tokens: int, keys: int, past: int, like: Tensor
) -> Float[Tensor, "batch_heads queries keys"]:
    """Give BLOOM's bias by distance, where its own is by the key's position, and loses neighbors in bfloat16.

    Args:
        scheme: ALiBi of its heads.
        mask: (batch, keys), 1 at tokens and 0 at padding; None is no padding.
        tokens: how many queries.
        keys: how many keys, with room that a cache has not filled.
        past: how many keys come before the first query.
        like: the bias that it replaces, (batch * heads, 1, keys).
    """
    batch = like.shape[0] // scheme.num_heads
    ones = torch.ones(1, keys, dtype=torch.long, device=like.device) if mask is None else mask.long()
    at = (ones.cumsum(-1) - 1).clamp(min=0)
    bias = _table(scheme, at[:, past : past + tokens], at).expand(batch, -1, -1, -1)
    return bias.flatten(0, 1).to(like.dtype)


def _table(scheme: ScoreBias, queries: Tensor, keys: Tensor) -> Float[Tensor, "batch heads queries keys"]:
    """Evaluate a bias at every pair, later keys too: the model has a mask of its own for them."""
    at_queries, at_keys = Positions(queries[None], queries), Positions(keys[None], keys)
    element = scheme.bind(at_queries, at_keys)
    return tabulate(element, queries.shape[0], scheme.num_heads, queries.shape[1], keys.shape[1], queries.device)
