"""A decoder of a user's own, and the ways in which one can be wrong."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.comparison.settings import Settings


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, here: ww.Here, causal: bool = True) -> Tensor:
        y = self.norm(x)
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = here.query_key(q, k, increments=here.increments(y))
        mixed = here.attention(q, k, v, causal=causal, gates=here.gates(y))
        return x + self.out(mixed.transpose(1, 2).flatten(-2))


class Decoder(nn.Module):
    causal, layer = True, 0

    def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
        super().__init__()
        self.where_of_layers = nn.ModuleList(wheres)
        self.input = ww.InputLayer(vocab_size, settings.dim, wheres[0].input)
        self.blocks = nn.ModuleList(Block(settings.dim, settings.heads) for _ in wheres)

    def bound(self, positions: ww.Positions) -> list[ww.Here]:
        return ww.bind(list(self.where_of_layers), positions)

    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        heres = self.bound(positions)
        x = self.input(ids, heres[0])
        for n, (block, here) in enumerate(zip(self.blocks, heres, strict=True)):
            x = block(self.mixed(x, ids, positions) if n == self.layer else x, here, self.causal)
        return self.input.tokens.readout(x)

    def mixed(self, x: Tensor, ids: Tensor, positions: ww.Positions) -> Tensor:
        """Return what one layer gets, into which other models mix something."""
        return x


class SeesLaterTokens(Decoder):
    causal = False


class CountsItself(Decoder):
    """It ignores the positions that it gets."""

    def bound(self, positions: ww.Positions) -> list[ww.Here]:
        return ww.bind(list(self.where_of_layers), positions.index.shape[-1])


class FirstOfAll(Decoder):
    """It uses the first layer's schemes in every layer."""

    def bound(self, positions: ww.Positions) -> list[ww.Here]:
        return [self.where_of_layers[0].at(positions)] * len(self.blocks)


class NoBias(Decoder):
    """It rotates, but leaves the bias of the scores out."""

    def bound(self, positions: ww.Positions) -> list[ww.Here]:
        return [ww.Where(input=where.input, query_key=where.query_key).at(positions) for where in self.where_of_layers]


class OwnPositions(Decoder):
    """It has a positional encoding of its own, below that of the scheme."""

    def mixed(self, x: Tensor, ids: Tensor, positions: ww.Positions) -> Tensor:
        return x + torch.sin(positions.index[0].float()).mT


class Bag(nn.Module):
    """No attention at all, and a layer that nothing uses."""

    def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, 8)
        self.left = nn.Linear(8, 8)

    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        return self.table(ids) @ self.table.weight.mT


class NoAttention(Bag):
    def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
        super().__init__(vocab_size, wheres, settings)
        del self.left


class OneLogit(NoAttention):
    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        return super().forward(ids, positions)[:, -1]


class Broken(NoAttention):
    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


class Noisy(Decoder):
    """Dropout that does not end with the training."""

    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        return torch.dropout(super().forward(ids, positions), 0.5, train=True)


class NotFinite(NoAttention):
    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        return super().forward(ids, positions) / 0.0


def zero_at_first(vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> nn.Module:
    """Return a right model whose layers begin at zero, as in many recipes."""
    model = Decoder(vocab_size, wheres, settings)
    for block in model.blocks:
        nn.init.zeros_(block.out.weight)
    return model


def mixing(
    mix: Callable[[Decoder, Tensor, Tensor], Tensor], layer: int = 0, **parts: Callable[[int], nn.Module | nn.Parameter]
) -> type[Decoder]:
    """Return a decoder into one layer of which a function of the model, its tokens and ids mixes something.

    `parts` are its further modules by name, each made for a width.
    """

    class Mixing(Decoder):
        def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
            super().__init__(vocab_size, wheres, settings)
            self.layer = layer
            for name, make in parts.items():
                setattr(self, name, make(settings.dim))

        def mixed(self, x: Tensor, ids: Tensor, positions: ww.Positions) -> Tensor:
            return mix(self, x, ids)

    return Mixing


def leaking(share: float, layer: int = 0) -> type[Decoder]:
    """Return a decoder into a layer of which so much of all tokens is mixed."""
    return mixing(lambda model, x, ids: x + share * x.mean(1, keepdim=True), layer)


def _next_of_pairs(model: Decoder, x: Tensor, ids: Tensor) -> Tensor:
    pairs = x[:, : x.shape[1] // 2 * 2].unflatten(1, (-1, 2)).flip(2).flatten(1, 2)
    return x + 1e-3 * nn.functional.pad(pairs, (0, 0, 0, x.shape[1] % 2))


def _after_dropout(model: Decoder, x: Tensor, ids: Tensor) -> Tensor:
    x = torch.dropout(x, 0.5, train=model.training)
    return x + 0.1 * x.mean(1, keepdim=True)


LEAKING = {
    "by chunk": mixing(_next_of_pairs),
    # Tokens know how often they occur, later ones included: no derivative shows it.
    "without slope": mixing(lambda model, x, ids: x + 1e-3 * (ids[:, None] == ids[:, :, None]).sum(1)[..., None]),
    "after dropout": mixing(_after_dropout),
    **{f"{share} in layer {n}": leaking(share, n) for share in (0.3, 0.1, 1e-3, 1e-6) for n in (0, 1)},
}
LEAKS_OF_TRAINING = mixing(lambda model, x, ids: model.norm(x.mT).mT, norm=nn.BatchNorm1d)
"""Normalized by the statistics of all tokens, in training alone."""
ROUNDS = mixing(lambda model, x, ids: x + model.number.round(), number=lambda dim: nn.Parameter(torch.randn(dim)))
"""It rounds a number, which has a gradient therefore, but one of zero."""


def _with_dropout(model: Decoder, x: Tensor, ids: Tensor) -> Tensor:
    """Drop numbers, in place, and keep a table from the first call on."""
    if not hasattr(model, "kept"):
        model.kept = torch.linspace(0.9, 1.1, x.shape[-1])
    x = torch.dropout(x, 0.2, train=model.training)
    return x.mul_(model.kept) if not x.is_leaf else x * model.kept


def _convolved(model: Decoder, x: Tensor, ids: Tensor) -> Tensor:
    """Convolve by FFT, causally, which rounds with all tokens."""
    n = 2 * x.shape[1]
    decay = torch.exp(-torch.arange(x.shape[1], dtype=x.dtype))[None, :, None]
    return x + torch.fft.irfft(torch.fft.rfft(x, n, 1) * torch.fft.rfft(decay, n, 1), n, 1)[:, : x.shape[1]]


def _masked_afterwards(model: Decoder, x: Tensor, ids: Tensor) -> Tensor:
    """Subtract the largest of all scores, and mask after the exponential."""
    scores = x @ x.mT / x.shape[-1]
    weights = (scores - scores.amax(-1, keepdim=True)).exp().tril()
    return x + weights / weights.sum(-1, keepdim=True) @ x


def _kept(model: Decoder, x: Tensor, ids: Tensor) -> Tensor:
    """Keep what was computed last, to look at: a tensor that cannot be copied."""
    model.last = x
    return x


def _by_experts(model: Decoder, x: Tensor, ids: Tensor) -> Tensor:
    """Send each token to one of five layers, of which two sequences may not reach all."""
    weight, chosen = model.router(x).softmax(-1).max(-1)
    y = torch.zeros_like(x)
    for number, expert in enumerate(model.experts):
        if (mine := chosen == number).any():
            y[mine] = expert(x[mine]) * weight[mine][:, None]
    return x + y


RIGHT = {
    "begins at zero": zero_at_first,
    "with dropout": mixing(_with_dropout),
    "convolves": mixing(_convolved),
    "masks afterwards": mixing(_masked_afterwards),
    "keeps numbers": mixing(_kept),
    # One that cannot compute in float64, and one of which a part computes in float32.
    "in float32": mixing(lambda model, x, ids: _convolved(model, x.float(), ids) @ torch.eye(x.shape[-1])),
    "partly in float32": mixing(lambda model, x, ids: x + (_convolved(model, x.float(), ids) - x.float()).to(x.dtype)),
    "experts": mixing(
        _by_experts,
        router=lambda dim: nn.Linear(dim, 5, bias=False),
        experts=lambda dim: nn.ModuleList(nn.Linear(dim, dim) for _ in range(5)),
    ),
}
