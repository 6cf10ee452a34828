"""Attention scores of a text, step by step: what the encoding of positions does to queries, keys and every score."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.position import positions
from whatwhere.where.base import tabulate
from whatwhere.where.binding import Where
from whatwhere.where.query_key.axial_rotary import AxialRotary
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.query_key.xpos import XPos


@dataclass(frozen=True, eq=False)
class AttentionScores:
    """Each step from input vectors to attention scores.

    Args:
        q: the vectors by heads, used as queries and as keys: head h takes the features from h dim / H on.
        mapped_q, mapped_k: after the query_key map of the scheme.
        products: <q_i, q_j> scale, before the map.
        mapped_products: <mapped_q_i, mapped_k_j> scale.
        bias: added to each score; None without a score scheme.
        scores: mapped products plus bias; minus infinity where the mask excludes the key.
        scale: the softmax scale.
        causal: whether later keys are masked.
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


def attention_scores(
    x: Float[Tensor, "tokens dim"], where: Where, num_heads: int, head_dim: int | None = None, *, causal: bool = True
) -> AttentionScores:
    """Return the attention scores of a text whose input vectors are both queries and keys, without projections.

        score(h, i, j) = < query_key(q_i, p_i), query_key(q_j, p_j) > * scale + score(h, p_i, p_j)        q = x by heads

    In a model, a norm and the projections W_q and W_k come between x and q, k. They are omitted, so that every number
    can be followed from the token's row on: the scores show what positions do, not what a layer has learned.

    Args:
        x: input of the first block.
        where: the encoding of positions, which count from 0.
        num_heads: of the attention.
        head_dim: features of a head; None is dim / num_heads. The features of wider heads wrap around at dim.
        causal: whether later keys are masked; schemes that are causal only need it.

    Raises:
        ShapeError: num_heads or head_dim is below 1.
        SettingError: the scheme is causal only, but causal is False.

    Examples:
        >>> from whatwhere import scheme
        >>> steps = attention_scores(torch.ones(2, 4), scheme("alibi", dim=4, num_heads=1, max_length=2), num_heads=1)
        >>> steps.scores
        tensor([[[2.0000,   -inf],
                 [1.9961, 2.0000]]])
    """
    size = head_dim or x.shape[1] // num_heads
    require_whole("attention_scores", num_heads=num_heads, head_dim=size)
    starts = torch.arange(num_heads) * x.shape[1] // num_heads
    features = (starts[:, None] + torch.arange(size)) % x.shape[1]  # (heads, head_dim)
    q = x[:, features].movedim(0, 1)[None].contiguous()  # (1, heads, tokens, head_dim)
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
    return AttentionScores(q[0], mapped_q[0], mapped_k[0], products[0], mapped[0], added, scores[0], scale, causal)


def rotary_pairs(scheme: object) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]] | None:
    """Return the two features of each pair that a rotary rotates, in the order of its frequencies; None for other maps.

    Examples:
        >>> from whatwhere import Rotary
        >>> [part.tolist() for part in rotary_pairs(Rotary(head_dim=6, rotary_dim=4))]
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
