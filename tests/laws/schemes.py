"""Two schemes that the library does not hold: one needs gates, one needs queries and keys.

They stand here to prove that the third door carries both kinds. Like any scheme of the catalogue, each has a row, and
so every law is tested on them as well.
"""

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.where.doors import Element


@final
class FoX(ww.ScoreBias):
    """Forget: each token closes a gate a little, and a score loses the log of all gates between query and key.

        score(h, i, j) += sum_{l = j+1..i} log f_l        f_l = sigmoid(<w_h, x_l> + b_h)

    Lin et al. 2025, Forgetting Transformer, https://arxiv.org/abs/2503.02130.
    """

    by_content = True

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.weight, self.bias = nn.Parameter(torch.empty(num_heads, dim)), nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the gates anew."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        nn.init.normal_(self.bias)

    def gates(self, x: Tensor) -> Tensor:
        """Give log f of each token, (batch, heads, tokens)."""
        return F.logsigmoid(F.linear(x, self.weight, self.bias)).mT

    def bind(
        self,
        queries: ww.Positions,
        keys: ww.Positions,
        *,
        q: Tensor | None = None,
        k: Tensor | None = None,
        gates: Tensor | None = None,
        causal: bool = True,
    ) -> Element:
        """Sum the gates up once; a score is the difference of two sums."""
        assert gates is not None, "FoX needs gates=here.gates(x) of all keys"
        if keys.segment is not None:  # padding forgets nothing
            gates = gates.masked_fill(keys.segment[:, None] < 0, 0)
        total, slot = gates.cumsum(-1), slots(queries, keys)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return total[b, h, slot[b % slot.shape[0], i]] - total[b, h, j]

        return element


@final
class CoPE(ww.ScoreBias):
    """Count the keys that matter: a gate says of each key whether it counts for this query.

        score(h, i, j) = <q_i, k_j> + <q_i, e[p_ij]>        p_ij = min(sum_{l = j..i} sigmoid(<q_i, k_l>), P - 1)

    with e between whole numbers by linear interpolation. Golovneva et al. 2024, Contextual Position Encoding,
    https://arxiv.org/abs/2405.18719. Scores are not divided by sqrt(head_dim), as the paper writes them.
    """

    by_content = True
    scale = 1.0

    def __init__(self, head_dim: int, num_heads: int, max_position: int = 6) -> None:
        super().__init__()
        self.num_heads, self.max_position = num_heads, max_position
        self.weight = nn.Parameter(torch.empty(max_position, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw e anew."""
        nn.init.normal_(self.weight, std=0.5)

    def bind(
        self,
        queries: ww.Positions,
        keys: ww.Positions,
        *,
        q: Tensor | None = None,
        k: Tensor | None = None,
        gates: Tensor | None = None,
        causal: bool = True,
    ) -> Element:
        """Make the whole table of <q_i, e[p_ij]>: (batch, heads, queries, keys)."""
        assert q is not None
        assert k is not None
        each_head = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        open_gates = (q @ each_head.mT).sigmoid() * queries.mask(keys)
        place = open_gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.max_position - 1)
        whole = q @ self.weight.mT  # (batch, heads, queries, max_position)
        floor, ceil = place.detach().floor(), place.detach().ceil()
        table = torch.lerp(whole.gather(-1, floor.long()), whole.gather(-1, ceil.long()), place - floor)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return table[b, h, i, j]

        return element


def slots(queries: ww.Positions, keys: ww.Positions) -> Tensor:
    """Find each query's own place among the keys, (batch, queries)."""
    same = queries.order[:, :, None] == keys.order[:, None, :]
    if queries.segment is not None and keys.segment is not None:
        same = same & (queries.segment[:, :, None] == keys.segment[:, None, :])
    return same.int().argmax(-1)


def _fox(dim: int, num_heads: int, max_length: int) -> ww.Where:
    return ww.Where(score=FoX(dim, num_heads))


def _cope(dim: int, num_heads: int, max_length: int, **options: Any) -> ww.Where:
    return ww.Where(score=CoPE(dim // num_heads, num_heads, **options))


ROWS = (
    ww.Scheme(
        name="FoX",
        door="score",
        formula="score(h, i, j) += sum_{l = j+1..i} log sigmoid(<w_h, x_l> + b_h)",
        paper="Lin et al., Forgetting Transformer: Softmax Attention with a Forget Gate",
        url="https://arxiv.org/abs/2503.02130",
        year=2025,
        used_by=(),
        build=_fox,
        learned=True,
        relative=True,
        causal_only=True,
    ),
    ww.Scheme(
        name="CoPE",
        door="score",
        formula="score(h, i, j) = <q_i, k_j> + <q_i, e[p_ij]>,  p_ij = min(sum_{l = j..i} sigmoid(<q_i, k_l>), P - 1)",
        paper="Golovneva et al., Contextual Position Encoding: Learning to Count What's Important",
        url="https://arxiv.org/abs/2405.18719",
        year=2024,
        used_by=(),
        build=_cope,
        learned=True,
        relative=True,
        causal_only=True,
        variants=({"max_position": 3},),
    ),
)
