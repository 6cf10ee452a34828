"""A decoder of a user's own, and the ways in which one can be wrong."""

from collections.abc import Sequence

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
    causal = True

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
        for block, here in zip(self.blocks, heres, strict=True):
            x = block(x, here, self.causal)
        return self.input.tokens.readout(x)


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

    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        heres = self.bound(positions)
        x = self.input(ids, heres[0]) + torch.sin(positions.index[0].float()).mT
        for block, here in zip(self.blocks, heres, strict=True):
            x = block(x, here)
        return self.input.tokens.readout(x)


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


class Leaking(Decoder):
    """A right decoder, into one layer of which a little of all tokens is mixed."""

    share, layer = 0.1, 0

    def forward(self, ids: Tensor, positions: ww.Positions) -> Tensor:
        heres = self.bound(positions)
        x = self.input(ids, heres[0])
        for n, (block, here) in enumerate(zip(self.blocks, heres, strict=True)):
            if n == self.layer:
                x = self.mixed(x, ids)
            x = block(x, here)
        return self.input.tokens.readout(x)

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        return x + self.share * x.mean(1, keepdim=True)


def leaking(share: float, layer: int = 0) -> type[Leaking]:
    """Return a model of which so much leaks into a layer."""
    return type("Leaking", (Leaking,), {"share": share, "layer": layer})


class LeaksOfTraining(Leaking):
    """Normalized by the statistics of all tokens, in training alone."""

    def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
        super().__init__(vocab_size, wheres, settings)
        self.norm = nn.BatchNorm1d(settings.dim)

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class LeaksByChunk(Leaking):
    """Tokens see the next one, in pairs."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        pairs = x[:, : x.shape[1] // 2 * 2].unflatten(1, (-1, 2)).flip(2).flatten(1, 2)
        return x + 1e-3 * nn.functional.pad(pairs, (0, 0, 0, x.shape[1] % 2))


class LeaksWithoutSlope(Leaking):
    """Tokens know how often they occur, later ones included: no derivative shows it."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        return x + 1e-3 * (ids[:, None] == ids[:, :, None]).sum(1)[..., None]


class LeaksAfterDropout(Leaking):
    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        return super().mixed(torch.dropout(x, 0.5, train=self.training), ids)


class WithDropout(Leaking):
    """A right one: dropout, an operation in place, and a table that is kept from the first call on."""

    def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
        super().__init__(vocab_size, wheres, settings)
        self.kept: Tensor | None = None

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = torch.linspace(0.9, 1.1, x.shape[-1])
        x = torch.dropout(x, 0.2, train=self.training)
        return x.mul_(self.kept) if not x.is_leaf else x * self.kept


class Convolves(Leaking):
    """A right one: a causal convolution by FFT, which rounds with all tokens."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        n = 2 * x.shape[1]
        decay = torch.exp(-torch.arange(x.shape[1], dtype=x.dtype))[None, :, None]
        return x + torch.fft.irfft(torch.fft.rfft(x, n, 1) * torch.fft.rfft(decay, n, 1), n, 1)[:, : x.shape[1]]


class MasksAfterwards(Leaking):
    """A right one: the largest of all scores is subtracted, and the mask comes after the exponential."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        scores = x @ x.mT / x.shape[-1]
        weights = (scores - scores.amax(-1, keepdim=True)).exp().tril()
        return x + weights / weights.sum(-1, keepdim=True) @ x


class MasksByNumbers(Leaking):
    """A right one: -10,000 is added to the scores of later keys."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        scores = x @ x.mT / x.shape[-1] + torch.full((x.shape[1],) * 2, -1e4, dtype=x.dtype).triu(1)
        return x + scores.softmax(-1) @ x


class ConvolvesInFloat32(Convolves):
    """A right one, of which only the convolution computes in float32."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        return x + (super().mixed(x.float(), ids) - x.float()).to(x.dtype)


class KeepsNumbers(Leaking):
    """A right one that keeps what it computed last, to look at: a tensor that cannot be copied."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        self.last = x
        return x


class Experts(Leaking):
    """A right one: each token takes one of five layers, and two sequences may not reach all."""

    def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
        super().__init__(vocab_size, wheres, settings)
        self.router = nn.Linear(settings.dim, 5, bias=False)
        self.experts = nn.ModuleList(nn.Linear(settings.dim, settings.dim) for _ in range(5))

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        weight, chosen = self.router(x).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            if (mine := chosen == number).any():
                y[mine] = expert(x[mine]) * weight[mine][:, None]
        return x + y


class Rounds(Leaking):
    """It rounds a number, which has a gradient therefore, but one of zero."""

    def __init__(self, vocab_size: int, wheres: Sequence[ww.Where], settings: Settings) -> None:
        super().__init__(vocab_size, wheres, settings)
        self.number = nn.Parameter(torch.randn(settings.dim))

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        return x + self.number.round()


class InFloat32(Convolves):
    """A right one that cannot compute in float64."""

    def mixed(self, x: Tensor, ids: Tensor) -> Tensor:
        mixed = super().mixed(x.float(), ids)
        return mixed @ torch.eye(x.shape[-1])
