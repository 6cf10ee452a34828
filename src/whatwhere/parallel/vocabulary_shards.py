"""A token table whose rows are spread over the processes that compute the same tokens, and the loss of its logits."""

import gc
from math import prod
from typing import Literal, final

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle
from torch.nn import functional as F

from whatwhere.checks import require_choice
from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.initialization import shard_offsets
from whatwhere.kernels.embedding import scaled
from whatwhere.kernels.linear_cross_entropy import loss_of, wide
from whatwhere.parallel.mesh import alike_everywhere, gathered, replicated, summed
from whatwhere.tensor_checks import require_ids
from whatwhere.what.embedding import TokenEmbedding, lookup
from whatwhere.what.loss import Projection, logits, require_tokens


@final
class VocabularyShards(TokenEmbedding):
    """A token table of which each process has a part of the rows; `shard_vocabulary` makes one of a TokenEmbedding.

    All processes of the mesh look the same ids up. Each reads those that it has, and the sum over all is what the whole
    table gives, to the bit; the gradient of a process has its own rows alone. `weight` is a DTensor in contiguous
    blocks of rows, as distributed checkpoints, `fully_shard` and optimizers take it.

    Attributes:
        mesh: the processes, in one dimension.
    """

    mesh: DeviceMesh
    sharding = "vocabulary"

    def forward(self, ids: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Look up the row of each id and multiply it by the scale; all processes of the mesh take part.

        Args:
            ids: whole numbers of any dtype, the same on all processes of the mesh: compared on the CPU, by a checksum.

        Raises:
            TokenError: If an id is outside the vocabulary, ids are not whole numbers, or they differ from those of
                another process: on all processes alike.
        """
        require_ids(ids)
        ids = ids.long()
        if not alike_everywhere(ids, self.mesh):
            raise differing("ids", "looks up")
        self._require_ids(ids)
        first, weight = self._own_rows()
        if len(weight) == 0:  # more processes than blocks of rows; the sum links it to the gradient
            return summed(weight.new_zeros(*ids.shape, self.embedding_dim) + weight.sum(), self.mesh)
        own = (ids >= first) & (ids < first + len(weight))
        index, padding = torch.where(own, ids - first, 0), self._own_padding(first, weight)
        if self.keeper is not None:
            rows = self.keeper.lookup(self.weight, index, padding)
        else:
            rows = lookup(weight, index, padding)
        return summed(scaled(rows, self.factor).masked_fill(~own[..., None], 0), self.mesh)

    def readout(self, hidden: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape vocab_size"]:
        """Compute logits, with the table as the output projection: each process those of its own tokens.

        Args:
            hidden: vectors of the last layer, the same on all processes of the mesh.

        Returns:
            Logits as a DTensor, sharded by tokens: for `vocabulary_cross_entropy`, or `full_tensor()`. Those of the own
            rows are in memory; `loss`, `log_probs` and `top` make a part of them at a time.

        Raises:
            ShapeError: If the vectors have another dim.
        """
        if self.keeper is not None:
            self.keeper.before_readout()
        first, weight = self._own_rows()
        return sharded_logits(hidden, weight, self.num_embeddings, self.mesh, self._own_padding(first, weight))

    def joined_numbers(self, numbers: Float[Tensor, "tokens numbers"]) -> Float[Tensor, "tokens numbers"]:
        """Return what a loss depends on, of all rows: log-sum-exp, and sums of logits, of which ids have one addend."""
        return _joined(numbers, self.mesh)

    def gathered_top(self, logits: Float[Tensor, "tokens k"], ids: Integer[Tensor, "tokens k"]) -> Tensor:
        """Return the ids of the largest logits of all processes, (tokens, k), of those of each."""
        logits, ids = (gathered(each, 1, self.mesh) for each in (logits, ids))
        return ids.gather(1, logits.topk(ids.shape[1] // self.mesh.size())[1])

    def _project(self, hidden: Float[Tensor, "tokens dim"], ids: Tensor | None = None) -> Projection:
        if ids is not None and not alike_everywhere(ids, self.mesh):
            raise differing("targets", "has the logits of")
        if self.keeper is not None:
            self.keeper.before_readout()
        first, weight = self._own_rows()
        padding = self._own_padding(first, weight)
        return Projection(replicated(hidden, self.mesh), weight, None, padding, first, self)

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"{super().extra_repr()}, shards={self.mesh.size()}"

    def _own_rows(self) -> tuple[int, Tensor]:
        offsets, weight = shard_offsets(self.weight), self.weight
        assert offsets is not None
        assert isinstance(weight, DTensor)
        return offsets[0], weight.to_local()

    def _own_padding(self, first: int, weight: Tensor) -> int | None:
        """Return the padding row among the own rows; None on the other processes."""
        own = self.padding_idx is not None and first <= self.padding_idx < first + len(weight)
        return self.padding_idx - first if own and self.padding_idx is not None else None


def differing(what: str, does: str) -> TokenError:
    """Return the error for tokens that are not the same on all processes of a mesh."""
    return TokenError(
        f"the {what} differ among the processes that share the vocabulary, of which each {does} its own rows alone.\n"
        f"Pass the same {what} on all of them; for batches of their own use fully_shard, or deal_rows."
    )


def sharded_logits(
    hidden: Float[Tensor, "*shape dim"],
    weight: Float[Tensor, "own_rows dim"],
    vocab_size: int,
    mesh: DeviceMesh,
    padding_idx: int | None = None,
) -> Float[Tensor, "*shape vocab_size"]:
    """Return logits as a DTensor, sharded by tokens: each process computes those of its own rows of the projection.

    The vectors are the same on all processes, and `padding_idx` counts the own rows.
    """
    # Every process has the gradient of its own logits with respect to the vectors: the sum is the whole one.
    own = logits(replicated(hidden, mesh), weight, padding_idx)
    shape = torch.Size((*hidden.shape[:-1], vocab_size))
    stride = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return DTensor.from_local(own, mesh, [Shard(own.dim() - 1)], run_check=False, shape=shape, stride=stride)


def shard_vocabulary(tokens: TokenEmbedding, mesh: DeviceMesh) -> VocabularyShards:
    """Spread the rows of a token table over the processes of a mesh, in place.

    Every process keeps about V / n contiguous rows: those of its optimizer state, its gradient and its logits are as
    many. The first process's values are used. A table made on the meta device is sharded before it has values, which
    `to_empty` and `reset_parameters` then give it: the same ones for any number of processes.

    Args:
        tokens: the table, before it has an optimizer and before `fully_shard`.
        mesh: processes that compute the same tokens, in one dimension: of a larger mesh, `mesh["tensor"]`.

    Returns:
        The same module, now a VocabularyShards with another parameter.

    Raises:
        SettingError: If the mesh has several dimensions, or the table is sharded or has an optimizer already, or
            another module has the same weight.
    """
    if mesh.ndim != 1:
        raise SettingError(
            f"the vocabulary is sharded along one dimension, but the mesh has {mesh.ndim}.\n"
            'Pass one of them, such as mesh["tensor"].'
        )
    if type(tokens) is not TokenEmbedding or isinstance(tokens.weight, DTensor):
        raise SettingError(
            f"the vocabulary of a TokenEmbedding can be sharded, but this is a {type(tokens).__name__} with a weight "
            f"of type {type(tokens.weight).__name__}.\nShard it once, before fully_shard."
        )
    if tokens.keeper is not None:
        raise SettingError("the table has an optimizer already.\nCreate RowAdamW after shard_vocabulary.")
    _require_alone(tokens)
    whole = tokens.weight
    tokens.weight = nn.Parameter(distribute_tensor(whole.detach(), mesh, [Shard(0)]), whole.requires_grad)
    tokens.__class__ = VocabularyShards
    assert isinstance(tokens, VocabularyShards)
    tokens.mesh = mesh
    return tokens


def _require_alone(tokens: TokenEmbedding) -> None:
    """Raise SettingError if another module has the weight too: it would keep the whole table and be tied no longer."""
    for holder in gc.get_referrers(tokens.weight):
        if holder is not tokens._parameters and isinstance(holder, dict):
            for owner in gc.get_referrers(holder):
                fields = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
                if fields.get("_parameters") is holder:
                    raise SettingError(
                        "another module has the same weight as the table, and would keep all of it.\n"
                        "Compute its logits by tokens.readout, or tie them after shard_vocabulary."
                    )


@final
class VocabularyParallel(ParallelStyle):
    """`shard_vocabulary` as a style for PyTorch's `parallelize_module`.

    Examples:
        >>> plan = {"tokens": VocabularyParallel()}  # parallelize_module(model, mesh, plan)
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, TokenEmbedding):
            raise SettingError(
                f"VocabularyParallel is for a TokenEmbedding, but this is a {type(module).__name__}.\n"
                "Name the table of the model in the plan, such as tokens."
            )
        return shard_vocabulary(module, device_mesh)


def vocabulary_cross_entropy(
    logits: Float[Tensor, "*shape vocab_size"],
    targets: Integer[Tensor, "*shape"],
    ignore_index: int = -100,
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Return the cross entropy, the same on all processes, of which none holds logits of other tokens than its own.

        loss = log sum_v exp z_v - z_target        maximum, sum and target are reduced over the processes

    Args:
        logits: of `VocabularyShards.readout`, as a DTensor sharded by tokens.
        targets: a token for each, the same on all processes: compared on the CPU, by a checksum.
        ignore_index: targets of this number do not count.
        reduction: `mean` or `sum` over the targets that count, in float32 at least.

    Raises:
        SettingError: If the logits are not sharded by tokens, or the reduction is unknown.
        ShapeError: If there is not one target for each.
        TokenError: If a target is not a whole number or outside the vocabulary, or targets differ from those of another
            process.
    """
    if not isinstance(logits, DTensor) or logits.placements != (Shard(logits.dim() - 1),):
        raise SettingError(
            "vocabulary_cross_entropy needs logits that are sharded by tokens, as VocabularyShards.readout returns "
            f"them, but got a {type(logits).__name__}.\nOf whole logits, use torch.nn.functional.cross_entropy."
        )
    require_choice("vocabulary_cross_entropy", "reduction", reduction, ("mean", "sum"))
    require_ids(targets, "targets")
    if targets.shape != logits.shape[:-1]:
        raise ShapeError(
            f"logits of shape {tuple(logits.shape)} need targets of shape {tuple(logits.shape[:-1])}, but got "
            f"{tuple(targets.shape)}.\nPass one target for each vector."
        )
    vocab_size, flat = logits.shape[-1], targets.flatten().long()
    if not alike_everywhere(flat, logits.device_mesh):
        raise differing("targets", "has the logits of")
    counted = flat != ignore_index
    require_tokens(torch.where(counted, flat, 0).view_as(targets), vocab_size, "target")
    offsets, local = shard_offsets(logits), logits.to_local().flatten(0, -2)
    assert offsets is not None
    own = (flat >= offsets[-1]) & (flat < offsets[-1] + local.shape[1])
    # One more column, below all logits: also processes without rows have a log-sum-exp.
    z = F.pad(local.to(wide(local.dtype)), (0, 1), value=-torch.inf)
    picked = torch.where(own, z.gather(1, torch.where(own, flat - offsets[-1], 0)[:, None])[:, 0], 0)
    numbers = torch.stack([z.logsumexp(1), torch.zeros_like(picked), picked], 1)
    losses = loss_of(_joined(numbers, logits.device_mesh), vocab_size)[counted]
    return losses.mean() if reduction == "mean" else losses.sum()


def _joined(numbers: Tensor, mesh: DeviceMesh) -> Tensor:
    largest = numbers[:, :1].detach().clone()
    torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX, group=mesh.get_group())
    sums = summed(torch.cat([(numbers[:, :1] - largest).exp(), numbers[:, 1:]], 1), mesh)
    return torch.cat([largest + sums[:, :1].log(), sums[:, 1:]], 1)
