"""The Transformer of a comparison on a mesh of processes: heads, features, rows, tokens and sequences of each.

    data, shard   sequences of its own; `fully_shard` spreads weights, gradients and moments over shard and context
    tensor        heads and hidden features of its own, and rows of the token table, for the same tokens
    context       tokens of its own; keys and values are gathered, or travel around a ring

The losses are those of one process up to rounding: each process samples the whole batch, and computes its part.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn import functional as F

from whatwhere.comparison.model import Block, Transformer, build_wheres, table_rows
from whatwhere.comparison.own_model import ComparedModel
from whatwhere.comparison.run import Job
from whatwhere.comparison.tasks import Batch
from whatwhere.comparison.train import Work, loss_sum
from whatwhere.errors import SettingError
from whatwhere.parallel.gradient_norm import clip_gradient_norm
from whatwhere.parallel.mesh import Mesh, MeshSizes, alike_copy, gathered, summed
from whatwhere.parallel.ring import require_ring, ring_attention
from whatwhere.parallel.vocabulary_shards import shard_vocabulary, sharded_logits, vocabulary_cross_entropy
from whatwhere.position.positions import Positions, positions
from whatwhere.position.slices import ShardOrder
from whatwhere.where.binding import Here, Where, bind, heads_of

KeysOfOthers = Literal["gathered", "ring"]
"""How processes of context attend to the keys of others: each has all of them, or two blocks at a time."""


def require_mesh_fits(job: Job, sizes: MeshSizes, order: ShardOrder, keys: KeysOfOthers = "gathered") -> None:
    """Raise before training if a mesh cannot carry the model, the batch or the sequences.

    Args:
        job: what to train.
        sizes: of the mesh.
        order: of the tokens of context.
        keys: how processes of context attend to the keys of others.

    Raises:
        SettingError: If heads, features or sequences do not divide, or a bias cannot be computed on a ring.
        ShapeError: If the tokens of a sequence do not divide.
    """
    settings = job.settings
    for name in ("heads", "feedforward"):
        if (count := getattr(settings, name)) % sizes.tensor:
            raise SettingError(
                f"{name}={count} cannot be split among {sizes.tensor} processes of tensor.\nPass a tensor that divides "
                f"{name}, or another {name}."
            )
    if settings.batch < sizes.batches:
        raise SettingError(
            f"batch={settings.batch} has too few sequences for {sizes.batches} processes of data and shard, of which "
            f"each needs one.\nPass --set batch={sizes.batches} or more, or split by tensor or context."
        )
    if sizes.context > 1:
        for length in job.task.trained:
            positions(job.task.token_count(length)).shard_slots(sizes.context, order)
        if keys == "ring":
            for where in build_wheres(
                job.scheme, settings.dim, settings.heads, table_rows(settings, job.task), settings.layers
            ):
                require_ring(where.score)


def shard_model(
    model: Transformer, mesh: Mesh, order: ShardOrder, keys: KeysOfOthers = "gathered"
) -> "ShardedTransformer":
    """Spread a model over a mesh of processes, in place.

    Args:
        model: whole, the same on all processes, without an optimizer.
        mesh: of the processes.
        order: which tokens each process of context has.
        keys: how processes of context attend to the keys of others.

    Returns:
        The same module, now a ShardedTransformer.

    Raises:
        SettingError: If a scheme or a token table cannot be split.
        ShapeError: If heads share parameters that cannot be split.
    """
    count = mesh.sizes.tensor
    heads = next(iter(model.blocks)).heads
    assert isinstance(heads, int)
    own = HeadShards(model.layer_wheres, mesh, heads) if count > 1 else None
    if count > 1:
        shard_vocabulary(model.input.tokens, mesh.tensor)
        if model.lm_head is not None:
            _distribute(model.lm_head, "weight", mesh, 0)
    for block in model.blocks:
        assert isinstance(block, Block)
        with torch.no_grad():
            block.qkv.weight.copy_(by_head(block.qkv.weight, heads))
        if count > 1:
            wide, narrow = block.feed[0], block.feed[2]
            for layer, name, axis in ((block.qkv, "weight", 0), (block.out, "weight", 1), (wide, "weight", 0),
                                      (wide, "bias", 0), (narrow, "weight", 1)):  # fmt: skip
                _distribute(layer, name, mesh, axis)
        block.__class__ = ShardedBlock
        assert isinstance(block, ShardedBlock)
        block.heads, block.mesh = heads // count, mesh
    model.__class__ = ShardedTransformer
    assert isinstance(model, ShardedTransformer)
    object.__setattr__(model, "shards", own)  # its modules are views of those of the model, and no parts of it
    model.mesh, model.order, model.keys = mesh, order, keys
    if mesh.sizes.processes > count:
        for block in model.blocks:
            fully_shard(block, mesh=mesh.replicas)
        fully_shard(model, mesh=mesh.replicas)
    return model


def by_head(weight: Tensor, heads: int) -> Tensor:
    """Return the rows of queries, keys and values in the order of heads, so that a block of rows has whole heads.

    Args:
        weight: rows of all queries, then of all keys, then of all values.
        heads: of the block.

    Examples:
        >>> by_head(torch.arange(6), heads=2)
        tensor([0, 2, 4, 1, 3, 5])
    """
    rows: Tensor = weight.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)
    return rows


def by_kind(weight: Tensor, heads: int) -> Tensor:
    """Return rows in the order of heads as those of all queries, then of all keys, then of all values.

    Args:
        weight: as `by_head` returns it.
        heads: of the block.
    """
    rows: Tensor = weight.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
    return rows


def _distribute(layer: nn.Module, name: str, mesh: Mesh, axis: int) -> None:
    whole = layer.get_parameter(name)
    setattr(layer, name, nn.Parameter(distribute_tensor(whole.detach(), mesh.tensor, [Shard(axis)])))


def _local(parameter: Tensor) -> Tensor:
    """Return the part of this process, with a gradient."""
    local: Tensor = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return local


class HeadShards:
    """The schemes of this process's heads, whose parameters are slices of the whole ones in each pass.

    Whole parameters stay alike on all processes of tensor: their gradients are summed.

    Args:
        wheres: of all heads, one for each layer.
        mesh: of the processes.
        heads: all of them.
    """

    def __init__(self, wheres: Sequence[Where], mesh: Mesh, heads: int) -> None:
        count = heads // mesh.sizes.tensor
        first = mesh.rank("tensor") * count
        self._mesh = mesh
        self._own = heads_of(wheres, first, count, total=heads)
        self._pairs: dict[int, tuple[nn.Module, nn.Module, dict[str, tuple[int, int, int]]]] = {}
        for where, own in zip(wheres, self._own, strict=True):
            for whole, part in ((where.query_key, own.query_key), (where.score, own.score), (where.sink, own.sink)):
                if whole is not None and part is not None and id(whole) not in self._pairs:
                    known = getattr(whole, "num_heads", None) is not None
                    ranges = whole.head_ranges(first, count, total=None if known else heads)
                    self._pairs[id(whole)] = (whole, part, ranges)

    def wheres(self) -> list[Where]:
        """Return the Where of each layer, with the slices of the parameters as they are now."""
        for whole, part, ranges in self._pairs.values():
            for name, parameter in whole.named_parameters():
                own = alike_copy(parameter, self._mesh.tensor)
                if name in ranges:
                    own = own.narrow(*ranges[name]).contiguous()
                owner, _, attribute = name.rpartition(".")
                # As torch.func.functional_call does: a pass asks parameters() whether gradients flow to a scheme.
                part.get_submodule(owner)._parameters[attribute] = own  # type: ignore[assignment]
        return self._own


@final
class ShardedBlock(Block):
    """A Block of which this process has some heads and hidden features; `shard_model` makes one of a Block."""

    mesh: Mesh

    def forward(self, x: Tensor, here: Here, at: int | None = None) -> Tensor:
        """Apply the block; arguments as for Block."""
        q, k, v, gates = self._project(x, here, at)
        y = here.attention(q, k, v, causal=self.causal, gates=gates)
        if at is not None:
            x = x[:, at : at + 1]
        x = x + self._sum(F.linear(y.transpose(1, 2).flatten(-2), _local(self.out.weight)))
        wide, activation, narrow = self.feed
        assert isinstance(wide, nn.Linear)
        assert isinstance(narrow, nn.Linear)
        hidden = activation(F.linear(self._copy(self.norm_feed(x)), _local(wide.weight), _local(wide.bias)))
        return x + self._sum(F.linear(hidden, _local(narrow.weight))) + narrow.bias

    def _project(self, x: Tensor, here: Here, at: int | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        y = self._copy(self.norm_attention(x))
        gates = here.gates(y)
        q, k, v = self._heads(y, at)
        q, k = here.query_key(q, k, increments=here.increments(y))
        return q, k, v, gates

    def _heads(self, y: Tensor, at: int | None) -> tuple[Tensor, Tensor, Tensor]:
        weight = _local(self.qkv.weight)
        if at is None:
            q, k, v = F.linear(y, weight).unflatten(-1, (self.heads, 3, -1)).permute(3, 0, 2, 1, 4).unbind(0)
            return q, k, v
        of_q, of_kv = weight.unflatten(0, (self.heads, 3, -1)).split([1, 2], dim=1)
        q = F.linear(y[:, at : at + 1], of_q.flatten(0, 2)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = F.linear(y, of_kv.flatten(0, 2)).unflatten(-1, (self.heads, 2, -1)).permute(3, 0, 2, 1, 4).unbind(0)
        return q, k, v

    def _copy(self, x: Tensor) -> Tensor:
        return alike_copy(x, self.mesh.tensor) if self.mesh.sizes.tensor > 1 else x

    def _sum(self, x: Tensor) -> Tensor:
        return summed(x, self.mesh.tensor) if self.mesh.sizes.tensor > 1 else x


@final
class ShardedTransformer(Transformer):
    """A Transformer on a mesh of processes; `shard_model` makes one of a Transformer.

    Attributes:
        mesh: of the processes.
        order: which tokens each process of context has: `forward` takes its own ids, with the positions of all tokens.
        keys: how they attend to the keys of others.
        shards: the schemes of its heads, where these are split.
    """

    mesh: Mesh
    order: ShardOrder
    keys: KeysOfOthers
    shards: HeadShards | None

    @property
    def layer_wheres(self) -> list[Where]:
        """The Where of each layer, for the heads of this process."""
        return super().layer_wheres if self.shards is None else self.shards.wheres()

    def _bind(self, ids: Tensor, at: int | None, p: Positions | None) -> tuple[list[Here], list[int | None]]:
        n = self.mesh.sizes.context
        if n == 1:
            return super()._bind(ids, at, p)
        p = positions(ids.shape[1] * n, device=ids.device) if p is None else p
        wheres, slots = self.layer_wheres, p.shard_slots(n, self.order)
        parts = [p.take(each) for each in slots]
        own = parts[self.mesh.rank("context")]
        to_map, to_attend = bind(wheres, own), bind(wheres, own, p.take(slots.flatten()))
        blocks = [bind(wheres, own, part) for part in parts] if self.keys == "ring" else []
        layers = zip(to_map, to_attend, strict=True)
        heres: list[Here] = [
            AllKeys(*pair, [block[number] for block in blocks], self.mesh) for number, pair in enumerate(layers)
        ]
        return [to_map[0], *heres], [None] * len(wheres)

    def _logits(self, x: Tensor) -> Tensor:
        if self.lm_head is None or self.shards is None:
            return super()._logits(x)
        return sharded_logits(x, _local(self.lm_head.weight), self.lm_head.out_features, self.mesh.tensor)


@final
class AllKeys(Here):
    """A Where bound to own tokens, which attend to the keys of all processes of context.

    Args:
        own: bound to the own tokens.
        attended: with the own tokens as queries, and the keys in the order in which they are gathered.
        blocks: the own tokens as queries of the keys of each process, which travel around a ring; none if gathered.
        mesh: of the processes.
    """

    def __init__(self, own: Here, attended: Here, blocks: Sequence[Here], mesh: Mesh) -> None:
        super().__init__(own.where, own._cache)
        self._attended, self._blocks, self._mesh = attended, blocks, mesh

    def query_key(
        self, q: Tensor, k: Tensor, *, increments: Tensor | None = None, in_place: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Map own queries and keys; return the keys of all processes where they are gathered."""
        if increments is None:
            q, k = super().query_key(q, k, in_place=in_place)
        else:  # which are summed over all earlier tokens; own keys are at the positions of the queries
            q, k = self._attended.query_key(q, k, increments=self._gathered(increments))
        return q, k if self._blocks else self._gathered(k)

    def attention(  # type: ignore[override]  # of which the model needs these arguments alone
        self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, gates: Tensor | None = None
    ) -> Tensor:
        """Compute attention of own queries to all keys; v and gates are those of own tokens."""
        if self._blocks:
            group = self._mesh.context.get_group()
            y: Tensor = ring_attention(self._blocks, q, k, v, causal=causal, gates=gates, group=group)
            return y
        score = self.where.score
        if gates is not None and score is not None and score.sums_between:
            gates = self._gathered(gates)
        return self._attended.attention(q, k, self._gathered(v), causal=causal, gates=gates)

    def _gathered(self, x: Tensor) -> Tensor:
        return gathered(x, 2, self._mesh.context)


@final
class SharedWork(Work):
    """The part of each step that this process of a mesh does.

    Args:
        mesh: of the processes.
        order: which tokens each process of context has.
    """

    def __init__(self, mesh: Mesh, order: ShardOrder) -> None:
        self._mesh, self._order = mesh, order
        self._processes = mesh.sizes.processes // mesh.sizes.tensor

    def own(self, batch: Batch, p: Positions | None) -> tuple[Batch, Positions | None]:
        """Return the sequences and tokens of this process, and the positions of all tokens of these sequences."""
        sizes = self._mesh.sizes
        rows = slice(self._mesh.rank("batches"), None, sizes.batches)
        own = Batch(batch.ids[rows], batch.targets[rows], batch.groups[rows], batch.at)
        if p is not None and p.batch > 1:
            of_rows: dict[str, Any] = {field.name: _rows(getattr(p, field.name), rows) for field in fields(p)}
            p = replace(p, **of_rows)
        if sizes.context == 1:
            return own, p
        targets = own.targets
        if own.at is not None:
            targets = torch.full_like(own.ids, -100)
            targets[:, own.at] = own.targets
        p = positions(own.ids.shape[1], device=own.ids.device) if p is None else p
        slots = p.shard_slots(sizes.context, self._order)[self._mesh.rank("context")]
        return Batch(own.ids[:, slots], targets[:, slots], targets[:, slots], None), p

    def loss(self, model: ComparedModel, own: Batch, p: Positions | None, count: Tensor) -> Tensor:
        """Compute the loss of the own part; `fully_shard` averages gradients, so that it counts for all processes."""
        logits = model(own.ids, own.at, p)
        if isinstance(logits, DTensor):
            total = vocabulary_cross_entropy(logits, own.targets, reduction="sum")
        else:
            total = loss_sum(logits, own.targets)
        return total * (self._processes / count)

    def mean(self, loss: Tensor) -> Tensor:
        """Return the loss of the whole batch, the same on all processes."""
        total = loss.detach().clone()
        for axis in ("data", "rows"):
            torch.distributed.all_reduce(total, group=self._mesh.weights.get_group(axis))
        return total / self._processes

    def clip(self, weights: Sequence[Tensor], max_norm: float) -> Tensor:
        """Scale the gradients by the norm of those of all processes, and return that."""
        return clip_gradient_norm(weights, max_norm)


def _rows(value: object, rows: slice) -> object:
    """Return some sequences of a field of positions."""
    return value[..., rows, :] if isinstance(value, Tensor) and value.shape[-2] > 1 else value
