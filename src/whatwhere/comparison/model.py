"""The Transformer that every scheme stands in: small, pre-norm, made of our own input layer and attention."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from whatwhere.comparison.settings import Settings
from whatwhere.layer import InputLayer
from whatwhere.ruler import Positions, positions
from whatwhere.where.binding import Here, Where, bind


class Block(nn.Module):
    """Attend, then feed; each is normalized first and added to what came in."""

    def __init__(self, dim: int, heads: int, feedforward: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_attention, self.norm_feed = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.feed = nn.Sequential(nn.Linear(dim, feedforward), nn.GELU(), nn.Linear(feedforward, dim))

    def forward(self, x: Float[Tensor, "batch tokens dim"], here: Here) -> Float[Tensor, "batch tokens dim"]:
        """Let every token gather from the others, by the layer's own way of saying where."""
        y = self.norm_attention(x)
        # (batch, tokens, 3 dim) -> 3 x (batch, heads, tokens, head_dim)
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        gates = here.gates(y)
        q, k = here.query_key(q, k)
        y = here.attention(q, k, v, causal=self.causal, gates=gates)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        fed: Tensor = x + self.feed(self.norm_feed(x))
        return fed


class Transformer(nn.Module):
    """Read tokens, give logits at the places that are asked.

    Args:
        vocab_size: tokens.
        wheres: one Where a layer.
        settings: sizes and direction.
    """

    def __init__(self, vocab_size: int, wheres: Sequence[Where], settings: Settings) -> None:
        super().__init__()
        dim = settings.dim
        self.input = InputLayer(vocab_size, dim, wheres[0].input, init=settings.token_std)
        self.blocks = nn.ModuleList(
            Block(dim, settings.heads, settings.feedforward, settings.direction == "decoder") for _ in wheres
        )
        self.norm = nn.LayerNorm(dim)
        self.readout = None if settings.tied else nn.Linear(dim, vocab_size, bias=False)
        self.wheres = nn.ModuleList(wheres)

    def forward(
        self, ids: Int64[Tensor, "batch tokens"], at: int | None = None, stands: Positions | None = None
    ) -> Float[Tensor, "batch *tokens vocab_size"]:
        """Give logits of the answer.

        Args:
            ids: tokens.
            at: the place asked, the same in all sequences; None asks every place.
            stands: where the tokens stand; None counts from 0.
        """
        heres = bind(self.layer_wheres, positions(ids.shape[1], device=ids.device) if stands is None else stands)
        x = self.input(ids, heres[0])
        for block, here in zip(self.blocks, heres, strict=True):
            x = block(x, here)
        x = self.norm(x if at is None else x[:, at])
        logits: Tensor = self.input.tokens.readout(x) if self.readout is None else self.readout(x)
        return logits

    @property
    def place(self) -> torch.device:
        """The device it lies on."""
        return self.norm.weight.device

    @property
    def layer_wheres(self) -> list[Where]:
        """One Where a layer."""
        return [where for where in self.wheres if isinstance(where, Where)]
