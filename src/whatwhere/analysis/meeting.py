"""Where queries meet keys: what position does to both, and to the score of every pair."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.ruler import positions
from whatwhere.where.binding import Where
from whatwhere.where.doors import tabulate
from whatwhere.where.query_key.axial_rotary import AxialRotary
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.query_key.xpos import XPos


@dataclass(frozen=True, eq=False)
class Meeting:
    """Hold each step from vectors to scores.

    Args:
        q: what stands for queries, and for keys too: head h takes the features of x from h dim / H on.
        mapped_q, mapped_k: the same after the map of the scheme, by position.
        products: <q_i, q_j> scale, before the map.
        mapped_products: <mapped_q_i, mapped_k_j> scale.
        bias: what is added to each score; None without a score scheme.
        scores: mapped products plus bias; minus infinity where a query may not look.
        scale: the softmax factor.
        causal: whether later keys are out.
    """

    q: Float[Tensor, "heads tokens head_dim"]
    mapped_q: Float[Tensor, "heads tokens mapped_dim"]
    mapped_k: Float[Tensor, "heads tokens mapped_dim"]
    products: Float[Tensor, "heads tokens tokens"]
    mapped_products: Float[Tensor, "heads tokens tokens"]
    bias: Float[Tensor, "heads tokens tokens"] | None
    scores: Float[Tensor, "heads tokens tokens"]
    scale: float
    causal: bool


def meet(
    x: Float[Tensor, "tokens dim"], where: Where, num_heads: int, head_dim: int | None = None, *, causal: bool = True
) -> Meeting:
    """Let the vectors of a text meet as queries and keys, with nothing trained between.

        score(h, i, j) = < query_key(q_i, p_i), query_key(q_j, p_j) > * scale + score(h, p_i, p_j)        q = x by heads

    In a model a norm and the projections W_q and W_k stand between x and q, k. They are left out here, so that every
    number can be followed from the token's row on: what is seen is what position does, not what a layer has learned.

    Args:
        x: what enters the first block.
        where: how position is told; positions count from 0.
        num_heads: of the attention.
        head_dim: features of a head; None is dim / num_heads. Where heads are wider than that, they begin anew at the
            first feature.
        causal: no query looks at a later key; schemes that say nothing of these need it.

    >>> from whatwhere import scheme
    >>> found = meet(torch.ones(2, 4), scheme("alibi", dim=4, num_heads=1, max_length=2), num_heads=1)
    >>> found.scores
    tensor([[[2.0000,   -inf],
             [1.9961, 2.0000]]])
    """
    size = head_dim or x.shape[1] // num_heads
    require_whole("meet", num_heads=num_heads, head_dim=size)
    starts = torch.arange(num_heads) * x.shape[1] // num_heads
    taken = (starts[:, None] + torch.arange(size)) % x.shape[1]  # (heads, head_dim)
    q = x[:, taken].movedim(0, 1)[None].contiguous()  # (1, heads, tokens, head_dim)
    here = where.at(positions(len(x)))
    scale = size**-0.5 if here.scale is None else here.scale
    with torch.no_grad():
        mapped_q, mapped_k = here.query_key(q, q.clone())
        for door in (where.query_key, where.score):
            if door is not None:
                door.require_direction(causal)
        bias = _bias(where, x, mapped_q, mapped_k, causal)
        products, mapped = (scale * (a @ b.transpose(-1, -2)) for a, b in ((q, q), (mapped_q, mapped_k)))
        scores = mapped if bias is None else mapped + bias
        if causal:
            scores = scores.masked_fill(~here.queries.mask(), -torch.inf)
    added = None if bias is None else bias[0]
    return Meeting(q[0], mapped_q[0], mapped_k[0], products[0], mapped[0], added, scores[0], scale, causal)


def pairs_of(scheme: object) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]] | None:
    """Give the features that make each pair that a map turns, in the order of its angles; None for other maps.

    >>> from whatwhere import Rotary
    >>> [part.tolist() for part in pairs_of(Rotary(head_dim=6, rotary_dim=4))]
    [[0, 1], [2, 3]]
    """
    if not isinstance(scheme, Rotary | AxialRotary | MultimodalRotary | XPos):
        return None
    pairs = torch.arange(len(scheme.inverse_frequencies))
    return (2 * pairs, 2 * pairs + 1) if scheme.interleaved else (pairs, pairs + len(pairs))


def _bias(where: Where, x: Tensor, q: Tensor, k: Tensor, causal: bool) -> Tensor | None:
    scheme = where.score
    if scheme is None:
        return None
    here = positions(len(x))
    element = scheme.bind(here, here, q=q, k=k, gates=scheme.gates(x[None]), causal=causal)
    return tabulate(element, 1, scheme.num_heads, len(x), len(x), x.device)
