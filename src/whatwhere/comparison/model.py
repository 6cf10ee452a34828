"""The Transformer that every scheme stands in: small, pre-norm, made of our own input layer and attention."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

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

    def forward(
        self, x: Float[Tensor, "batch tokens dim"], here: Here, at: int | None = None
    ) -> Float[Tensor, "batch asked dim"]:
        """Let every token gather from the others, by the layer's own way of saying where.

        Args:
            x: the tokens.
            here: bound to the tokens that ask, and all that are looked at.
            at: the one that asks, as in a last layer of which nothing else is read; None is all of them.
        """
        q, k, v, gates = self._asked(x, here, at)
        y = here.attention(q, k, v, causal=self.causal, gates=gates)
        if at is not None:
            x = x[:, at : at + 1]
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        fed: Tensor = x + self.feed(self.norm_feed(x))
        return fed

    def weights(
        self, x: Float[Tensor, "batch tokens dim"], here: Here, at: int | None = None
    ) -> Float[Tensor, "batch heads asked tokens"]:
        """Give how much each token that asks gathers from each: of values that are one-hot, attention gives these."""
        q, k, v, gates = self._asked(x, here, at)
        ones = torch.eye(k.shape[2], dtype=v.dtype, device=v.device).expand(*k.shape[:2], -1, -1)
        return here.attention(q, k, ones, causal=self.causal, gates=gates, engine="dense")

    def _asked(self, x: Tensor, here: Here, at: int | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Give mapped queries and keys, values, and gates."""
        y = self.norm_attention(x)
        gates = here.gates(y)
        q, k, v = self._heads(y, at)
        q, k = here.query_key(q, k)
        return q, k, v, gates

    def _heads(self, y: Tensor, at: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Give queries, keys and values; queries of one place only, if one asks."""
        if at is None:
            # (batch, tokens, 3 dim) -> 3 x (batch, heads, tokens, head_dim)
            q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v
        dim = y.shape[-1]
        of_q, of_k_and_v = self.qkv.weight.split([dim, 2 * dim])
        q = F.linear(y[:, at : at + 1], of_q).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = F.linear(y, of_k_and_v).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v


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
        heres, places = self._bound(ids, at, stands)
        x = self.input(ids, heres[0])
        for block, here, place in zip(self.blocks, heres[1:], places, strict=True):
            x = block(x, here, place)
        if at is not None:
            x = x[:, 0]
        x = self.norm(x)
        logits: Tensor = self.input.tokens.readout(x) if self.readout is None else self.readout(x)
        return logits

    def weights(
        self, ids: Int64[Tensor, "batch tokens"], at: int | None = None, stands: Positions | None = None
    ) -> list[Float[Tensor, "batch heads asked tokens"]]:
        """Give the attention weights of every layer; arguments as for `forward`."""
        heres, places = self._bound(ids, at, stands)
        x, found = self.input(ids, heres[0]), []
        for block, here, place in zip(self._layers, heres[1:], places, strict=True):
            found.append(block.weights(x, here, place))
            x = block(x, here, place)
        return found

    def _bound(self, ids: Tensor, at: int | None, stands: Positions | None) -> tuple[list[Here], list[int | None]]:
        """Give the Here of the input and of each layer, and the place that each is asked at."""
        stands = positions(ids.shape[1], device=ids.device) if stands is None else stands
        wheres = self.layer_wheres
        heres = bind(wheres, stands)
        places: list[int | None] = [None] * len(wheres)
        first = heres[0]
        if at is not None:
            places[-1] = place = range(ids.shape[1])[at]  # counted from the start
            heres[-1] = wheres[-1].at(stands[place : place + 1], stands)
        return [first, *heres], places

    @property
    def _layers(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    @property
    def place(self) -> torch.device:
        """The device it lies on."""
        return self.norm.weight.device

    @property
    def layer_wheres(self) -> list[Where]:
        """One Where a layer."""
        return [where for where in self.wheres if isinstance(where, Where)]
