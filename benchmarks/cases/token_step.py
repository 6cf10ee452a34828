"""A training step of the token table: rows looked up, their gradient, the optimizer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Absent, Candidate, Case, Run, Scale, Variant
from benchmarks.numerics import sampled
from benchmarks.peers import load
from whatwhere import RowAdamW, TokenEmbedding

FEW_ROWS = "whatwhere RowAdamW, on the smallest table"
"""Part of the variant of the most rows, to show whether the time grows with the rows."""

_SETTINGS: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
_OURS, _SPARSE = "whatwhere RowAdamW", "torch SparseAdam (computes something else)"
_DENSE: dict[str, dict[str, Any]] = {
    f"torch AdamW, {name}": {"foreach": name == "foreach", "fused": name == "fused"}
    for name in ("for-loop", "foreach", "fused")
}
_BATCHES = 64
"""Batches of ids that the steps go through, again and again: rows come back after some steps, as in training."""
_TRIAL_ROWS, _TRIAL_DIM, _TRIAL_TOKENS, _TRIAL_STEPS = 512, 16, 64, 100


@dataclass(frozen=True)
class Trained:
    """A table in training.

    Args:
        step: takes ids and the gradient of their vectors.
        table: returns all rows, up to date.
    """

    step: Callable[[Tensor, Tensor], None]
    table: Callable[[], Tensor]


Train = Callable[[nn.Parameter], Trained]


def variants(scale: Scale) -> list[Variant]:
    """Return tables from few to many rows, ids sampled evenly or by Zipf's law.

    Args:
        scale: quick or full, and the device.
    """
    tokens, dim, sizes = (16, 8, (64, 256)) if scale.quick else (4096, 1024, (8192, 32_768, 131_072, 262_144))
    return [
        _variant(rows, dim, tokens, law, scale.device, few=sizes[0] if rows == sizes[-1] else None)
        for rows in sizes
        for law in ("uniform", "zipf")
    ]


def _variant(rows: int, dim: int, tokens: int, law: str, device: str, few: int | None) -> Variant:
    return Variant(
        f"{rows:,} rows, {law} ids",
        limit="copy of (3 U + N) rows",
        prepare=lambda: _Inputs(rows, dim, tokens, law, device).candidates(few),
        error=f"after {_TRIAL_STEPS} steps of a small table: distance from dense AdamW in float64, as a share of the "
        "largest change of a weight",
        unit=tokens * dim * 4,
    )


class _Inputs:
    """The ids of a variant, and one table for the dense peers: their moments are the same, so they share them."""

    def __init__(self, rows: int, dim: int, tokens: int, law: str, device: str) -> None:
        self.rows, self.dim, self.law, self.device = rows, dim, law, device
        self.ids = sample_ids(rows, tokens, law, _BATCHES, device)
        self.upstream = sampled(tokens, dim, seed=1, device=device).mul_(1e-2)
        self.table = cache(self._table)
        self.moments: dict[str, Any] | None = {} if device == "cpu" else None

    def candidates(self, few: int | None) -> list[Candidate]:
        listed = [
            Candidate("copy of (3 U + N) rows", self._copy),
            self._candidate(_OURS, row_adamw, self._table),
        ]
        if few is not None:
            listed.append(Candidate(FEW_ROWS, partial(self._few, few)))
        for name, options in _DENSE.items():
            listed.append(self._candidate(name, partial(dense, options, self.moments), self.table))
        listed.append(self._candidate(_SPARSE, partial(sparse, self.moments), self.table))
        listed.append(Candidate("fbgemm, row-wise Adagrad (computes something else)", self._fbgemm))
        return listed

    def _candidate(self, name: str, train: Train, table: Callable[[], nn.Parameter]) -> Candidate:
        return Candidate(name, lambda: self._steps(train(table())), lambda _: trial_error(name, self.device))

    def _table(self) -> nn.Parameter:
        return nn.Parameter(sampled(self.rows, self.dim, seed=0, device=self.device).mul_(0.02))

    def _steps(self, trained: Trained) -> Run:
        ids = cycle(self.ids)
        return lambda: trained.step(next(ids), self.upstream)

    def _copy(self) -> Run:
        different = sum(len(batch.unique()) for batch in self.ids) / len(self.ids)
        source = sampled(round(3 * different) + self.ids.shape[1], self.dim, seed=2, device=self.device)
        to = torch.empty_like(source)
        return lambda: to.copy_(source)

    def _few(self, rows: int) -> Run:
        other = _Inputs(rows, self.dim, self.ids.shape[1], self.law, self.device)
        return other._steps(row_adamw(other._table()))

    def _fbgemm(self) -> Run:
        if self.device != "cpu":
            raise Absent("its CPU build is what is timed")
        return self._steps(fbgemm(self.table()))


def sample_ids(rows: int, tokens: int, law: str, batches: int, device: str = "cpu") -> Int64[Tensor, "batches tokens"]:
    """Sample batches of ids.

    Args:
        rows: of the table.
        tokens: ids in a batch.
        law: `uniform`, or `zipf`: the n-th row with a probability proportional to 1 / n.
        batches: how many.
        device: where the ids are put.

    Returns:
        The ids, the same for the same arguments.

    Examples:
        >>> sample_ids(8, 5, "zipf", 2).shape
        torch.Size([2, 5])
    """
    weights = torch.ones(rows) if law == "uniform" else 1 / torch.arange(1.0, rows + 1)
    ids = weights.multinomial(batches * tokens, replacement=True, generator=torch.Generator().manual_seed(0))
    return ids.view(batches, tokens).to(device)


def row_adamw(weight: nn.Parameter) -> Trained:
    """Train with our optimizer, which touches the rows of the batch only.

    Args:
        weight: the table.

    Returns:
        The table in training.
    """
    embedding = TokenEmbedding.from_weight(weight)
    optimizer = RowAdamW(embedding, **_SETTINGS)

    def step(ids: Tensor, upstream: Tensor) -> None:
        embedding(ids).backward(upstream)
        optimizer.step()
        optimizer.zero_grad()

    def table() -> Tensor:
        optimizer.flush()
        return embedding.weight

    return Trained(step, table)


def dense(options: dict[str, Any], moments: dict[str, Any] | None, weight: nn.Parameter) -> Trained:
    """Train with PyTorch's AdamW.

    Args:
        options: which of its implementations.
        moments: the state to share with others of the same weight.
        weight: the table.

    Returns:
        The table in training.
    """
    optimizer = torch.optim.AdamW([weight], **_SETTINGS, **options)
    if moments is not None:
        optimizer.state[weight] = moments

    def step(ids: Tensor, upstream: Tensor) -> None:
        F.embedding(ids, weight).backward(upstream)
        optimizer.step()
        optimizer.zero_grad()

    return Trained(step, lambda: weight)


def sparse(moments: dict[str, Any] | None, weight: nn.Parameter) -> Trained:
    """Train with PyTorch's SparseAdam, which ignores the rows outside of the batch and has no weight decay.

    Args:
        moments: of a dense optimizer, to share; four optimizers with moments of their own would fill 20 GB.
        weight: the table.

    Returns:
        The table in training.
    """
    optimizer = torch.optim.SparseAdam([weight], **{name: _SETTINGS[name] for name in ("lr", "betas", "eps")})
    if moments:
        optimizer.state[weight] = {"step": 0, **{name: moments[name] for name in ("exp_avg", "exp_avg_sq")}}

    def step(ids: Tensor, upstream: Tensor) -> None:
        F.embedding(ids, weight, sparse=True).backward(upstream)
        optimizer.step()
        optimizer.zero_grad()

    return Trained(step, lambda: weight)


def fbgemm(weight: nn.Parameter) -> Trained:
    """Train with fbgemm's fused table; on a CPU it has no Adam, and row-wise Adagrad is its nearest.

    Args:
        weight: the table.

    Returns:
        The table in training.

    Raises:
        Absent: If fbgemm is not installed, or does not import here.
    """
    load("fbgemm_gpu")
    codegen: Any = load("fbgemm_gpu.split_table_batched_embeddings_ops_training")
    common: Any = load("fbgemm_gpu.split_table_batched_embeddings_ops_common")
    kinds: Any = load("fbgemm_gpu.split_embedding_configs")
    table = codegen.SplitTableBatchedEmbeddingBagsCodegen(
        [(*weight.shape, common.EmbeddingLocation.HOST, codegen.ComputeDevice.CPU)],
        optimizer=kinds.EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=_SETTINGS["lr"],
        pooling_mode=common.PoolingMode.NONE,
    )
    table.split_embedding_weights()[0].data.copy_(weight.data)

    def step(ids: Tensor, upstream: Tensor) -> None:
        table(ids, torch.tensor([0, len(ids)])).backward(upstream)

    return Trained(step, lambda: table.split_embedding_weights()[0])


@cache
def trial_error(name: str, device: str) -> float:
    """Train a small table, and return how far it is from float64, as a share of the largest change of a weight.

    Args:
        name: of a candidate.
        device: `cpu` or `cuda`.

    Returns:
        max |weight - truth| / max |truth - start|.
    """
    start = sampled(_TRIAL_ROWS, _TRIAL_DIM, seed=3, device=device) * 0.02
    ids = sample_ids(_TRIAL_ROWS, _TRIAL_TOKENS, "zipf", _TRIAL_STEPS, device)
    upstream = sampled(_TRIAL_STEPS, _TRIAL_TOKENS, _TRIAL_DIM, seed=4, device=device) * 1e-2
    trains: dict[str, Train] = {_OURS: row_adamw, _SPARSE: partial(sparse, None)}
    trains |= {dense_name: partial(dense, options, None) for dense_name, options in _DENSE.items()}

    def trained(train: Train, dtype: torch.dtype) -> Tensor:
        trainer = train(nn.Parameter(start.to(dtype, copy=True)))
        for batch, gradient in zip(ids, upstream.to(dtype), strict=True):
            trainer.step(batch, gradient)
        return trainer.table().detach().double()

    truth = trained(partial(dense, {"foreach": False}, None), torch.float64)
    away = (trained(trains[name], torch.float32) - truth).abs().max()
    return float(away / (truth - start).abs().max())


CASE = Case(
    "token-step",
    "a training step of an untied token table, 4,096 tokens, dim 1,024",
    "Lookup, backward, optimizer step; float32. N tokens touch U rows. AdamW updates every row at every step; RowAdamW "
    "computes the same, a row at a time when it is read. SparseAdam leaves out the updates of the other rows, and "
    "row-wise Adagrad is another optimizer: they are here for their speed. The limit copies as many rows as the "
    "touched weights and moments, and the gradient.",
    variants,
)
