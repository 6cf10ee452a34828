"""The encoder-decoder of "Attention Is All You Need", from whatwhere's parts, trained to write a word backwards.

    source ids -> tokens + positions -> encoder -> memory
    target ids -> tokens + positions -> decoder, with cross-attention to the memory -> logits of the next token

Run it: python examples/encoder_decoder.py [--steps 400]. It takes under a minute on one CPU core.

Source words have different lengths, so the sources are padded on the right; no query attends to padding.
"""

import argparse
import string

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.where.binding import Here

PAD, BEGIN, END = 0, 1, 2
LETTERS = string.ascii_lowercase
VOCAB_SIZE = 3 + len(LETTERS)


class Attention(nn.Module):
    """Project to queries, keys and values; attend from one sequence to the same or another."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.to_q, self.to_kv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, source: Tensor, here: Here, causal: bool) -> Tensor:
        """Attend from the tokens of x to those of the source, which is x itself in self-attention."""
        q, k, v = (self.heads(part) for part in (self.to_q(x), *self.to_kv(source).chunk(2, -1)))
        q, k = here.query_key(q, k)
        y = here.attention(q, k, v, causal=causal)
        return self.out(y.transpose(1, 2).flatten(-2))

    def heads(self, x: Tensor) -> Tensor:
        """Split (batch, tokens, dim) into heads: (batch, heads, tokens, head_dim)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """One layer of the encoder, or of the decoder, which has attention to the memory too."""

    def __init__(self, dim: int, num_heads: int, decoder: bool) -> None:
        super().__init__()
        self.attention = Attention(dim, num_heads)
        self.cross = Attention(dim, num_heads) if decoder else None
        self.feed = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3 if decoder else 2))

    def forward(self, x: Tensor, here: Here, memory: Tensor | None = None, across: Here | None = None) -> Tensor:
        """Add self-attention, cross-attention (decoder) and feed-forward to x, each of normalized vectors."""
        y = self.norms[0](x)
        x = x + self.attention(y, y, here, causal=self.cross is not None)
        if self.cross is not None and memory is not None and across is not None:
            x = x + self.cross(self.norms[2](x), memory, across, causal=False)
        return x + self.feed(self.norms[1](x))


class EncoderDecoder(nn.Module):
    """An encoder-decoder. Source, target and output projection share one token table, as in the paper."""

    def __init__(self, where: ww.Where, dim: int = 64, num_heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.where = where
        self.tokens = ww.TokenEmbedding(VOCAB_SIZE, dim, init=dim**-0.5, scale="sqrt_dim", padding_idx=PAD)
        self.encoder = nn.ModuleList(Layer(dim, num_heads, decoder=False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(dim, num_heads, decoder=True) for _ in range(layers))
        self.norm_memory, self.norm = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def encode(self, source: Tensor) -> tuple[Tensor, ww.Positions]:
        """Encode a source (batch, tokens) as the memory (batch, tokens, dim); return it with its positions."""
        positions = ww.Positions.from_mask(source != PAD)
        here = self.where.at(positions)
        x = here.input(self.tokens(source))
        for layer in self.encoder:
            x = layer(x, here)
        return self.norm_memory(x), positions

    def decode(self, target: Tensor, memory: Tensor, source_positions: ww.Positions) -> Tensor:
        """Compute the logits of the token after each token of the target."""
        positions = ww.positions(target.shape[1])
        here, across = self.where.at(positions), self.where.at(positions, source_positions)
        x = here.input(self.tokens(target))
        for layer in self.decoder:
            x = layer(x, here, memory, across)
        return self.tokens.readout(self.norm(x))

    @torch.no_grad()
    def write(self, source: Tensor, max_length: int) -> Tensor:
        """Decode the target greedily."""
        memory, positions = self.encode(source)
        target = source.new_full((source.shape[0], 1), BEGIN)
        for _ in range(max_length):
            target = torch.cat([target, self.decode(target, memory, positions)[:, -1:].argmax(-1)], dim=1)
        return target[:, 1:]


def words(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sample words of 3 to 8 letters: padded sources, and targets, the words backwards between BEGIN and END."""
    sizes = torch.randint(3, 9, (count, 1), generator=generator)
    letters = torch.randint(3, VOCAB_SIZE, (count, 8), generator=generator)
    slots = torch.arange(8)
    source = torch.where(slots < sizes, letters, PAD)
    backwards = letters.gather(1, (sizes - 1 - slots).clamp(min=0))
    target = torch.where(slots < sizes, backwards, torch.where(slots == sizes, END, PAD))
    begin, end = source.new_full((count, 1), BEGIN), torch.where(sizes == 8, END, PAD)
    return source, torch.cat([begin, target, end], dim=1)


def train(model: EncoderDecoder, steps: int, generator: torch.Generator) -> float:
    """Train on fresh words; return the last loss in nats per letter."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    loss = torch.tensor(float("nan"))
    for _ in range(steps):
        source, target = words(128, generator)
        logits = model.decode(target[:, :-1], *model.encode(source))
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item()


def accuracy(model: EncoderDecoder, generator: torch.Generator) -> float:
    """Measure the share of fresh words that are written backwards without a mistake."""
    source, target = words(500, generator)
    written, wanted = model.write(source, target.shape[1] - 1), target[:, 1:]
    return ((written == wanted) | (wanted == PAD)).all(-1).float().mean().item()


def spell(ids: Tensor) -> str:
    """Return the letters of one sequence, up to END or padding."""
    text = ""
    for token in ids.tolist():
        if token in (END, PAD):
            break
        text += LETTERS[token - 3]
    return text


def main(steps: int = 400, seed: int = 0) -> dict[str, float]:
    """Train with sinusoidal positions, as the paper does, and without any; print and return the accuracies."""
    result = {}
    for name in ("sinusoidal", "none"):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        model = EncoderDecoder(ww.scheme(name, dim=64, num_heads=4, max_length=16))
        loss = train(model, steps, generator)
        result[name] = accuracy(model, generator)
        source, _ = words(1, generator)
        example = f"{spell(source[0])} -> {spell(model.write(source, 9)[0])}"
        print(f"{name:>10}: loss {loss:.3f}, words written backwards {result[name]:.1%}, for example {example}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="training steps")
    main(parser.parse_args().steps)
