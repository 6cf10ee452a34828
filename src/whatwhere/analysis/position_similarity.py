"""Cosine similarity of vectors; an encoding as an image, as vectors, and as curves by distance."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.errors import ShapeError
from whatwhere.position.positions import positions
from whatwhere.where.base import InputEncoding, QueryKeyMap
from whatwhere.where.binding import Where
from whatwhere.where.frequencies import angles
from whatwhere.where.region_map import products
from whatwhere.where.score_bias import ScoreBias


def similarity(u: Float[Tensor, "*#shape dim"], v: Float[Tensor, "*#shape dim"]) -> Float[Tensor, "*out"]:
    """Return the cosine similarity of vectors, in float64: one number from -1 to 1 for each pair.

        cos(u, v) = <u, v> / (|u| |v|)        0 where a vector is 0

    Args:
        u, v: vectors of the same dim, whose other shapes broadcast: similarity(E[:, None], E) compares all rows of E.

    Raises:
        ShapeError: If the dims differ.

    Examples:
        >>> cat, dog, car = torch.tensor([[0.2, -0.4, 0.7], [0.6, 0.1, 0.5], [-0.2, 0.4, -0.7]])
        >>> similarity(cat, car).item()
        -1.0
    """
    if u.shape[-1] != v.shape[-1]:
        raise ShapeError(f"similarity needs vectors of the same dim, but got {tuple(u.shape)} and {tuple(v.shape)}.")
    first, second = u.double(), v.double()
    norms = first.norm(dim=-1) * second.norm(dim=-1)
    inner = (first * second).sum(-1)
    return torch.where(norms > 0, inner / norms.where(norms > 0, 1.0), 0.0).clamp(-1, 1)


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """One row of numbers for each position (or distance), for a heat map, and what they show."""

    label: str
    values: Float[Tensor, "rows columns"]


@dataclass(frozen=True, eq=False)
class ByDistance:
    """Similarity, or bias, of two tokens by the distance between them: curves by name, such as "head 0"."""

    label: str
    curves: dict[str, Float[Tensor, " distances"]]


def fingerprint(where: Where, rows: int) -> Fingerprint | None:
    """Return an image of the first scheme of an encoding at positions 0..rows-1; None if it has none, or needs content.

    input       the vector added at each position
    query_key   cos(p w_n) of each pair; for other maps a query of ones after the map
    score       the bias of each distance, one column for each head

    Args:
        where: the encoding.
        rows: number of positions or distances.

    Examples:
        >>> from whatwhere import scheme
        >>> fingerprint(scheme("alibi", dim=8, num_heads=2, max_length=4), rows=2).values
        tensor([[-0.0000, -0.0000],
                [-0.0625, -0.0039]])
    """
    if where.input is not None:
        return Fingerprint("rows by dimension", _rows(where.input, rows))
    if where.query_key is not None:
        return None if where.query_key.by_content else _map_fingerprint(where.query_key, rows)
    if where.score is not None and not where.score.by_content:
        return Fingerprint("bias by distance, one column a head", _bias_by_distance(where.score, rows).T)
    return None


def vectors(where: Where, rows: int) -> Float[Tensor, "rows columns"] | None:
    """Return a vector for each of positions 0..rows-1, from the first scheme of an encoding; None if it has none.

    input       the vector that is added
    query_key   a query of ones after the map, of the first head
    score       None: a bias depends on two positions

    Args:
        where: the encoding.
        rows: number of positions.

    Examples:
        >>> from whatwhere import scheme
        >>> vectors(scheme("rotary", dim=2, num_heads=1, max_length=2), rows=2)
        tensor([[ 1.0000,  1.0000],
                [-0.3012,  1.3818]])
    """
    if where.input is not None:
        return _rows(where.input, rows)
    scheme = where.query_key
    return None if scheme is None or scheme.by_content else _mapped_ones(scheme, rows)


def by_distance(where: Where, distances: int) -> ByDistance | None:
    """Return curves of the first scheme of an encoding over distances 0..distances-1; None as for `fingerprint`.

    input       cosine of the vectors of two positions, from the first position
    query_key   <map(q, p), map(k, p - distance)> / |q|^2 for q = k = ones: the mean over the features
    score       the bias of each head

    Args:
        where: the encoding.
        distances: number of distances.

    Examples:
        >>> from whatwhere import scheme
        >>> curve = by_distance(scheme("rotary", dim=8, num_heads=2, max_length=4), 3).curves["mean of all pairs"]
        >>> curve[0].item()
        1.0
    """
    if where.input is not None:
        rows = _rows(where.input, distances)
        return ByDistance("cosine of two rows", {"from position 0": similarity(rows[:1], rows)})
    if where.query_key is not None:
        scheme = where.query_key
        if scheme.by_content:
            return None
        ones, queries = _ones(scheme, distances), positions(distances)
        bound = scheme.bind(queries)
        q, k = (x.detach().double() for x in (scheme.map_query(ones, bound), scheme.map_key(ones, bound)))
        with_first = products(scheme, q, k[:, :, :1], queries, queries[:1])[0, 0, :, 0]
        return ByDistance("inner product of equal query and key", {"mean of all pairs": with_first / scheme.head_dim})
    if where.score is not None and not where.score.by_content:
        bias = _bias_by_distance(where.score, distances)
        return ByDistance("bias added to the score", {f"head {n}": row for n, row in enumerate(bias)})
    return None


def _rows(scheme: InputEncoding, rows: int) -> Tensor:
    return scheme(positions(rows))[0].detach()


def _ones(scheme: QueryKeyMap, tokens: int) -> Tensor:
    """Return queries of ones, with one head, or with as many as the map has parameters for."""
    return torch.ones(1, int(getattr(scheme, "num_heads", 1)), tokens, scheme.head_dim)


def _map_fingerprint(scheme: QueryKeyMap, rows: int) -> Fingerprint:
    frequencies = getattr(scheme, "inverse_frequencies", None)
    if isinstance(frequencies, Tensor) and 2 * len(frequencies) <= scheme.head_dim:  # PoPE has no pairs
        return Fingerprint("cos of the angle of each pair", angles(torch.arange(rows), frequencies.detach()).cos())
    return Fingerprint("a query of ones, mapped", _mapped_ones(scheme, rows))


def _mapped_ones(scheme: QueryKeyMap, rows: int) -> Tensor:
    mapped = scheme.map_query(_ones(scheme, rows), scheme.bind(positions(rows)))
    return mapped[0, 0].detach()


def _bias_by_distance(scheme: ScoreBias, distances: int) -> Tensor:
    # The last query alone has every distance; the bias of all pairs of 30,000 positions would take gigabytes.
    last = positions(1, start=distances - 1)
    return scheme(last, positions(distances), causal=True)[0, :, 0].flip(-1).detach()
