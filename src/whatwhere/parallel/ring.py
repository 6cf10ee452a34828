"""Attention over a sequence that is spread over processes: blocks of keys and values travel around a ring of them.

Each process keeps its queries. While it attends to one block, that block goes on to the next process and another one
arrives; the outputs are merged by the logarithms of their sums. In the backward pass the blocks go around once more,
with their gradients, and attention to each is computed again. A process has two blocks of keys at a time, not all.

The bias of FoX is a difference of sums over all tokens, of which each head and token has one number: its gates are
gathered. A count of CoPE differs from query to query: each process would need its queries times all keys, which is more
than the keys themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed
from torch.distributed import P2POp, ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from whatwhere.errors import SettingError, ShapeError
from whatwhere.kernels.backend import full_precision
from whatwhere.parallel.mesh import gathered
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import readable
from whatwhere.where.attention import Engine, merge_attention, with_sink
from whatwhere.where.binding import Here, Where
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias
from whatwhere.where.sums import at_slots, differences, query_slots, require_no_holes


@torch.compiler.disable  # type: ignore[untyped-decorator]
def ring_attention(
    heres: Sequence[Here],
    q: Float[Tensor, "batch mapped_heads queries mapped_dim"],
    k: Float[Tensor, "batch mapped_key_heads keys mapped_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    *,
    causal: bool = True,
    gates: Float[Tensor, "batch heads queries *features"] | None = None,
    engine: Engine = "auto",
    group: ProcessGroup | None = None,
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Compute attention of the own queries to the keys of all processes, which travel around a ring.

    With n processes, each sends its neighbor n - 1 blocks of keys and values in the forward pass; in the backward pass
    as many again, and n blocks of their gradients, which are summed in float32 at least.

    Args:
        heres: for each process, in the order of ranks, the own queries bound to its keys.
        q: the own queries, mapped.
        k: the own keys, mapped; as many on each process.
        v: the own values.
        causal: mask keys that are later than the query.
        gates: those of the own tokens, of a gated bias: Inkling's and FoX's.
        engine: `auto`, `dense`, `sdpa` or `flex`.
        group: the processes; None is all of them.

    Returns:
        The same as attention to all keys at once. All processes take part, also in the backward pass.

    Raises:
        SettingError: If there is not one Here for each process, the bias counts keys between query and key (CoPE),
            gates are missing, or a parameter of the bias has a hook. On all processes alike.
        ShapeError: If a tensor has another number of tokens, sequences, heads or features.
        PositionError: If the bias sums over the tokens between query and key, and some are on no process.

    Examples:
        >>> import whatwhere as ww
        >>> distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        >>> where, p = ww.Where(ww.Rotary(head_dim=8)), ww.positions(6)
        >>> shards = p.shards(distributed.get_world_size(), "zigzag")
        >>> own = shards[distributed.get_rank()]
        >>> heres = [where.at(own, each) for each in shards]
        >>> q, k, v = torch.randn(3, 1, 2, own.tokens, 8)
        >>> q, k = where.at(own).query_key(q, k)
        >>> ring_attention(heres, q, k, v).shape
        torch.Size([1, 2, 6, 8])
        >>> distributed.destroy_process_group()
    """
    rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    parameters = _checked(heres, size)
    own = heres[rank]
    if any(here.keys.tokens != k.shape[2] for here in heres):
        raise ShapeError(
            f"k has {k.shape[2]} keys, but the blocks have {[here.keys.tokens for here in heres]}: all need as many.\n"
            "Make the blocks by p.shards(n), and pass the own keys alone."
        )
    if size > 1 and own.where.score is not None and own.where.score.sums_between:
        heres, gates = _with_sums(heres, gates, rank, group)
    q, k, v = _of_one_dtype(q, k, v)
    ring = _Ring(tuple(heres), causal, engine, group, rank, size, k.shape, v.shape)
    with full_precision(q.device):
        y, lse = _RingAttention.apply(ring, q, k, v, gates, *parameters)  # type: ignore[no-untyped-call]
        sink = own.where.sink
        return with_sink(y, lse, None if sink is None else sink.weight)


def _checked(heres: Sequence[Here], size: int) -> list[Tensor]:
    """Return the parameters of the bias, after checks that are the same on all processes: none waits for another."""
    if len(heres) != size or any(here.where is not heres[0].where for here in heres):
        raise SettingError(
            f"a ring of {size} processes needs the own queries bound to the keys of each, but got {len(heres)}.\n"
            "Pass [where.at(own, each) for each in p.shards(n)]."
        )
    score = heres[0].where.score
    if size > 1 and score is not None and score.sums_between:
        if type(score).sums is ScoreBias.sums:
            raise SettingError(
                f"{type(score).__name__} counts, for each query, all keys between it and a key, which no process of a "
                "ring has.\nGather keys and values of all processes, and bind their positions: where.at(own, "
                "p.take(slots))."
            )
        return []  # of FoX, which enter by the gates alone
    parameters: list[Tensor] = [] if score is None else [each for each in score.parameters() if each.requires_grad]
    if any(each._backward_hooks for each in parameters):
        raise SettingError(
            f"a parameter of {type(score).__name__} has a hook on its gradient, which a ring would call for each block."
            "\nRemove it, and change the gradient after the backward pass."
        )
    return parameters


def _with_sums(
    heres: Sequence[Here], gates: Tensor | None, rank: int, group: ProcessGroup | None
) -> tuple[list[Here], Tensor]:
    """Return bindings whose bias is a difference of sums, and the sums: of the own queries, then of all keys."""
    own, score = heres[rank], heres[rank].where.score
    assert score is not None
    if gates is None or gates.shape[-1] != own.keys.tokens:
        raise SettingError(
            f"{type(score).__name__} needs the gates of the {own.keys.tokens} own keys, but got "
            f"{'none' if gates is None else f'those of {gates.shape[-1]}'}.\nPass gates=here.gates(x)."
        )
    keys = _joined([here.keys for here in heres])
    require_no_holes(keys)
    everyone = distributed.group.WORLD if group is None else group
    assert everyone is not None
    sums = score.sums(keys, gathered(gates, 2, DeviceMesh.from_group(everyone, gates.device.type)))
    assert sums is not None
    count = own.keys.tokens
    at_queries = sums[..., rank * count : (rank + 1) * count]
    if own.queries is not own.keys:
        at_queries = at_slots(sums, query_slots(own.queries, keys))
    found = []
    for number, here in enumerate(heres):
        where, first = here.where, own.queries.tokens + number * count
        bias = _Difference(score.num_heads, first, gates.dtype)
        whole = Where(query_key=where.query_key, score=bias, scale=where.scale, window=where.window, sink=where.sink)
        found.append(Here(whole, here._cache))
    return found, torch.cat([at_queries, sums], dim=-1)


def _joined(parts: Sequence[Positions]) -> Positions:
    rows = max(p.batch for p in parts)
    index = torch.cat([p.index.expand(-1, rows, -1) for p in parts], dim=-1)
    order = torch.cat([p.order.expand(rows, -1) for p in parts], dim=-1)
    segment = starts = None
    if any(p.segment is not None for p in parts):
        of_parts = [torch.zeros_like(p.order) if p.segment is None else p.segment for p in parts]
        segment = torch.cat([each.expand(rows, -1) for each in of_parts], dim=-1)
    if any(p.is_part for p in parts):
        starts = torch.cat([p.known_starts().expand(rows, -1) for p in parts], dim=-1)
    return Positions(index, order, segment, document_start=starts)


class _Difference(ScoreBias):
    """A bias that is a number of the query minus one of the key, which are passed as gates."""

    by_content = True
    causal_only = True

    def __init__(self, num_heads: int, first: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_heads, self._first, self._dtype = num_heads, first, dtype

    def gates(self, x: Tensor) -> Tensor:
        return x

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        assert gates is not None
        of_keys = gates[..., self._first : self._first + keys.tokens]
        return differences(gates[..., : queries.tokens], of_keys, self._dtype)


def _of_one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of the dtype that attention computes with."""
    kind = q.device.type
    if torch.is_autocast_enabled(kind) and torch.float64 not in (q.dtype, k.dtype, v.dtype):
        dtype = torch.get_autocast_dtype(kind)
    else:
        dtype = torch.promote_types(q.dtype, torch.promote_types(k.dtype, v.dtype))
    return q.to(dtype), k.to(dtype), v.to(dtype)


@dataclass(frozen=True)
class _Ring:
    """The processes, and how the own queries attend to the keys of each."""

    heres: tuple[Here, ...]
    causal: bool
    engine: Engine
    group: ProcessGroup | None
    rank: int
    size: int
    k_shape: torch.Size
    v_shape: torch.Size

    def at(self, step: int) -> Here:
        return self.heres[(self.rank - step) % self.size]

    def attend(self, here: Here, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None) -> tuple[Tensor, Tensor]:
        return here.attention_with_lse(q, k, v, causal=self.causal, gates=gates, engine=self.engine)

    def sees(self, here: Here) -> bool:
        """Return False where all keys of a block are known to be later than all queries."""
        queries, keys = here.queries.order, here.keys.order
        if not self.causal or 0 in (queries.numel(), keys.numel()) or not (readable(queries) and readable(keys)):
            return True
        return bool((keys.amin(-1) <= queries.amax(-1)).any())

    def unpacked(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a block, or their gradients, as views."""
        k, v = block.split([self.k_shape.numel(), self.v_shape.numel()])
        return k.view(self.k_shape), v.view(self.v_shape)

    def send(self, block: Tensor) -> "_Arriving":
        """Begin to send a block to the next process, and to receive one from the process before."""
        if self.size == 1:
            return _Arriving(block, block, [])
        arriving = torch.empty_like(block)
        after, before = ((self.rank + n) % self.size for n in (1, -1))
        if self.group is not None:
            after, before = (distributed.get_global_rank(self.group, n) for n in (after, before))
        both = [
            P2POp(distributed.isend, block, after, self.group),
            P2POp(distributed.irecv, arriving, before, self.group),
        ]
        return _Arriving(arriving, block, distributed.batch_isend_irecv(both))


@dataclass(frozen=True)
class _Arriving:
    """A block on its way, and the one that is sent, which must not be freed before."""

    block: Tensor
    sent: Tensor
    work: list[Any]

    def wait(self) -> Tensor:
        for each in self.work:
            each.wait()
        return self.block


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ring: _Ring, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        block = torch.cat([k.flatten(), v.flatten()])
        merged: list[tuple[Tensor, Tensor]] = []
        for step in range(ring.size):
            arriving = ring.send(block) if step + 1 < ring.size else None
            if ring.sees(here := ring.at(step)):
                y, lse = ring.attend(here, q, *ring.unpacked(block), gates)
                merged = [merge_attention([*merged, (y.to(lse.dtype), lse)])]
            block = block if arriving is None else arriving.wait()
        [(y, lse)] = merged
        ctx.save_for_backward(q, k, v, gates, y, lse, *parameters)
        ctx.set_materialize_grads(False)
        ctx.ring = ring
        return y.to(q.dtype), lse

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, gates, y, lse, *parameters = ctx.saved_tensors
        ring, wide = ctx.ring, y.dtype
        g = torch.zeros_like(y) if g is None else g.to(wide)
        # dL/dl of a block is w (<g, y_n> - rest), where w = exp(l_n - l) is the block's share of the weights.
        rest = (g * y).sum(-1) - (0 if g_lse is None else g_lse)
        fixed = [q, *([] if gates is None or not gates.requires_grad else [gates]), *parameters]
        sums = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, wide)) for x in fixed]
        block, arriving, home = torch.cat([k.flatten(), v.flatten()]), None, None
        with full_precision(q.device):
            for step in range(ring.size):
                arriving = ring.send(block) if step + 1 < ring.size else None
                of_block = torch.zeros_like(block, dtype=wide)
                if ring.sees(here := ring.at(step)):
                    found = _gradients(ring, here, fixed, gates, ring.unpacked(block), (g, rest, lse))
                    for total, part in zip([*sums, *ring.unpacked(of_block)], found, strict=True):
                        total.add_(0 if part is None else part)
                # The gradient of a block follows it, and gathers what each process adds.
                of_block = of_block if home is None else home.wait().add_(of_block)
                home = ring.send(of_block)
                block = block if arriving is None else arriving.wait()
            assert home is not None
            of_k, of_v = ring.unpacked(home.wait())
        of_fixed = [total.to(x.dtype) for total, x in zip(sums, fixed, strict=True)]
        of_gates = of_fixed.pop(1) if len(fixed) > 1 + len(parameters) else None
        return None, of_fixed[0], of_k.to(k.dtype), of_v.to(v.dtype), of_gates, *of_fixed[1:]


def _gradients(
    ring: _Ring,
    here: Here,
    fixed: list[Tensor],
    gates: Tensor | None,
    of_block: tuple[Tensor, Tensor],
    upstream: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor | None, ...]:
    """Compute attention to a block again, and the gradients of queries, gates, parameters, keys and values."""
    g, rest, lse = upstream
    with torch.enable_grad():
        q, k, v = (x.detach().requires_grad_() for x in (fixed[0], *of_block))
        given = gates if gates is None else gates.detach().requires_grad_(gates.requires_grad)
        own_gates = [] if given is None or not given.requires_grad else [given]
        y_block, lse_block = ring.attend(here, q, k, v, given)
    weights = (lse_block.detach() - lse).exp().masked_fill(lse == -torch.inf, 0)
    to_lse = weights * ((g * y_block.detach()).sum(-1) - rest)
    to_y = (weights[..., None] * g).to(y_block.dtype)
    inputs = [q, *own_gates, *fixed[1 + len(own_gates) :], k, v]
    return torch.autograd.grad([y_block, lse_block], inputs, [to_y, to_lse], allow_unused=True)
