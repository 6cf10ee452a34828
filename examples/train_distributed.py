"""Train one small decoder on several processes, each with a part of its weights, heads, vocabulary, batch and tokens.

    data      sequences of its own; `fully_shard` spreads weights, gradients and moments over data and context
    tensor    heads, hidden features and rows of the token table of its own, for the same tokens
    context   tokens of its own, of the same sequences: keys travel around a ring, or are gathered

The losses are those of one process up to rounding: each process samples the whole batch and computes its part.

Run it: torchrun --nproc-per-node 4 examples/train_distributed.py [--scheme fire] [--tensor 2] [--context 2]
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

import whatwhere as ww
from whatwhere import parallel
from whatwhere.parallel import gathered, replicated, summed


class Processes:
    """All processes: those of `rows` spread the weights, of `data` the batch, of `context` the tokens of a sequence."""

    def __init__(self, tensor: int = 1, context: int = 1, ring: bool = True, order: str = "zigzag") -> None:
        rows = distributed.get_world_size() // tensor
        weights = init_device_mesh("cpu", (rows, tensor), mesh_dim_names=("rows", "tensor"))
        tokens = init_device_mesh("cpu", (rows // context, context, tensor), mesh_dim_names=("data", "context", "same"))
        self.rows, self.tensor, self.ring = weights["rows"], weights["tensor"], ring
        self.data, self.context, self.order = tokens["data"], tokens["context"], order

    def slots(self, tokens: int) -> Tensor:
        """Return which tokens of a sequence this process has."""
        return ww.positions(tokens).shard_slots(self.context.size(), self.order)[self.context.get_local_rank()]


class Block(nn.Module):
    """Attention and a feed-forward part; `qkv` has the rows of each head together, so that heads can be split."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.head_dim = dim // heads
        self.norm_attention, self.norm_feed = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor, own: ww.Here, to_all: ww.Here, to_each: Sequence[ww.Here], mesh: Processes) -> Tensor:
        y = replicated(self.norm_attention(x), mesh.tensor)
        q, k, v = self.qkv(y).unflatten(-1, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4)
        gates, increments = own.gates(y), own.increments(y)
        if increments is None:
            q, k = own.query_key(q, k)
        else:  # which are summed over all earlier tokens
            q, k = to_all.query_key(q, k, increments=gathered(increments, 2, mesh.context))
        if to_each:
            y = parallel.ring_attention(to_each, q, k, v, gates=gates, group=mesh.context.get_group())
        else:
            if gates is not None and own.where.score.sums_between:  # else they are those of own queries
                gates = gathered(gates, 2, mesh.context)
            y = to_all.attention(q, gathered(k, 2, mesh.context), gathered(v, 2, mesh.context), gates=gates)
        x = x + summed(self.out(y.transpose(1, 2).flatten(-2)), mesh.tensor)
        y = replicated(self.norm_feed(x), mesh.tensor)
        return x + summed(self.down(F.gelu(self.up(y))), mesh.tensor)


class Decoder(nn.Module):
    """A decoder whose output projection is the token table."""

    def __init__(self, vocab_size: int, dim: int, heads: int, wheres: Sequence[ww.Where]) -> None:
        super().__init__()
        self.heads, self.wheres = heads, nn.ModuleList(wheres)
        self.tokens, self.norm = ww.TokenEmbedding(vocab_size, dim), nn.RMSNorm(dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in wheres)

    def forward(self, ids: Tensor, mesh: Processes) -> Tensor:
        """Return the logits of own tokens, whose positions are a part of those of the whole sequences."""
        p = ww.positions(ids.shape[1] * mesh.context.size())
        parts, own = p.shard_slots(mesh.context.size(), mesh.order), p.take(mesh.slots(p.tokens))
        heres, to_all = ww.bind(self.wheres, own), ww.bind(self.wheres, own, p.take(parts.flatten()))
        to_each = [ww.bind(self.wheres, own, p.take(part)) for part in parts] if mesh.ring else []
        x = heres[0].embed(self.tokens, ids)
        for n, block in enumerate(self.blocks):
            x = block(x, heres[n], to_all[n], [each[n] for each in to_each], mesh)
        return self.tokens.readout(self.norm(x))


def split(model: Decoder, mesh: Processes) -> Decoder:
    """Keep this process's part of a model that all processes have built alike."""
    if (n := mesh.tensor.size()) > 1:
        rank, count = mesh.tensor.get_local_rank(), model.heads // n
        model.wheres = nn.ModuleList(parallel.heads_of(model.wheres, rank * count, count, total=model.heads))
        for block in model.blocks:
            for layer, axis in ((block.qkv, 0), (block.out, 1), (block.up, 0), (block.down, 1)):
                layer.weight = nn.Parameter(layer.weight.detach().chunk(n, axis)[rank].clone())
        parallel.shard_vocabulary(model.tokens, mesh.tensor)
    for unit in (*model.blocks, model) if mesh.rows.size() > 1 else ():
        fully_shard(unit, mesh=mesh.rows)
    return model


def sum_shared_gradients(wheres: Iterable[ww.Where], mesh: Processes) -> None:
    """Sum the gradients of parameters that belong to all heads, as of FIRE's first layer; those of a head stay."""
    parts = [part for where in wheres for part in (where.query_key, where.score, where.sink) if part is not None]
    for module in nn.ModuleList(parts).modules():  # once, what layers share
        for name, parameter in module.named_parameters(recurse=False):
            if name not in getattr(module, "sliced_parameters", ()) and (gradient := parameter.grad) is not None:
                local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
                distributed.all_reduce(local, group=mesh.tensor.get_group())


def train(model: Decoder, batches: Iterable[Tensor], mesh: Processes, learning_rate: float = 1e-2) -> list[float]:
    """Train a model that was split, and return the losses of the whole batches of (sequences, tokens + 1) ids."""
    optimizer, losses, rows = torch.optim.AdamW(model.parameters(), learning_rate, foreach=False), [], mesh.rows.size()
    for ids in batches:
        slots, own = mesh.slots(ids.shape[1] - 1), ids[mesh.data.get_local_rank() :: mesh.data.size()]
        logits, targets = model(own[:, slots], mesh), own[:, slots + 1]
        entropy = parallel.vocabulary_cross_entropy if isinstance(logits, DTensor) else F.cross_entropy
        # fully_shard averages gradients over the processes with other tokens, so that each counts for all of them.
        loss = entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") * rows / ids[:, 1:].numel()
        optimizer.zero_grad()
        loss.backward()
        sum_shared_gradients(model.wheres, mesh)
        optimizer.step()
        distributed.all_reduce(mean := loss.detach() / rows, group=mesh.rows.get_group())
        losses.append(mean.item())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--scheme", default="rotary")
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--context", type=int, default=1)
    options = parser.parse_args()
    distributed.init_process_group("gloo")
    mesh = Processes(options.tensor, options.context)
    torch.manual_seed(0)  # all processes build the same model and sample the same batches
    model = Decoder(256, 64, 4, [ww.scheme(options.scheme, dim=64, num_heads=4, max_length=64)] * 2)
    text = torch.tensor(list(Path(__file__).read_bytes()))
    starts = [torch.randint(len(text) - 65, (8, 1)) for _ in range(40)]
    losses = train(split(model, mesh), [text[start + torch.arange(65)] for start in starts], mesh)
    if distributed.get_rank() == 0:
        print(f"{options.scheme} on {distributed.get_world_size()} processes: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    distributed.destroy_process_group()
