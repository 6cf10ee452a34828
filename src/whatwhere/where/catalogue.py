"""The catalogue: one row for each way of saying where; nothing else in the library knows a list of schemes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, ShapeError, UnknownScheme
from whatwhere.where.binding import Where
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi

Door = Literal["input", "query_key", "score"]


@dataclass(frozen=True)
class Scheme:
    """Describe one scheme: what it is, what it promises, and how to build it.

    Args:
        name: what `scheme(name)` takes.
        door: where it enters; None for no scheme.
        formula: the equation, in one line.
        paper, url, year: the source.
        used_by: models that were trained with it.
        build: (dim, num_heads, max_length, **options) -> Where.
        learned: it has parameters.
        relative: moving all positions by one offset changes no score.
        any_length: it is defined at every position (whether a model is good there is another question).
        causal_only: it has no meaning for keys later than the query.
        longest: the laws hold for positions up to here.
        near: distances up to here are told apart in bfloat16; None where the door has no table of its own.
        variants: further options that the laws test.
    """

    name: str
    door: Door | None
    formula: str
    paper: str
    url: str
    year: int
    used_by: tuple[str, ...]
    build: Callable[..., Where]
    learned: bool = False
    relative: bool = False
    any_length: bool = True
    causal_only: bool = False
    longest: int = 1_000_000
    near: int | None = None
    variants: tuple[Mapping[str, Any], ...] = field(default=())


def _head_dim(dim: int, num_heads: int) -> int:
    if dim % num_heads:
        raise ShapeError(
            f"dim={dim} does not divide into num_heads={num_heads}: each head needs the same number of features.\n"
            f"The nearest dims that do are {dim - dim % num_heads} and {dim - dim % num_heads + num_heads}."
        )
    return dim // num_heads


def _none(dim: int, num_heads: int, max_length: int) -> Where:
    return Where()


def _sinusoidal(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(input=Sinusoidal(dim, **options))


def _learned(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(input=Learned(dim, max_length, **options))


def _rotary(dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    return Where(query_key=Rotary(_head_dim(dim, num_heads), **options))


def _alibi(dim: int, num_heads: int, max_length: int) -> Where:
    _head_dim(dim, num_heads)
    return Where(score=ALiBi(num_heads))


_ROWS = (
    Scheme(
        name="none",
        door=None,
        formula="x_i = what(token_i)",
        paper="Haviv et al., Transformer Language Models without Positional Encodings Still Learn Positions",
        url="https://arxiv.org/abs/2203.16634",
        year=2022,
        used_by=("some layers of Llama 4, SmolLM3",),
        build=_none,
        relative=True,
    ),
    Scheme(
        name="sinusoidal",
        door="input",
        formula="x_i += (sin p w_0, cos p w_0, sin p w_1, ...),  w_n = theta^(-2n/dim)",
        paper="Vaswani et al., Attention Is All You Need",
        url="https://arxiv.org/abs/1706.03762",
        year=2017,
        used_by=("the original Transformer", "Transformer-XL", "fairseq"),
        build=_sinusoidal,
        variants=({"layout": "halves"}, {"layout": "tensor2tensor"}, {"theta": 500.0}),
    ),
    Scheme(
        name="learned",
        door="input",
        formula="x_i += P[p_i]",
        paper="Gehring et al., Convolutional Sequence to Sequence Learning",
        url="https://arxiv.org/abs/1705.03122",
        year=2017,
        used_by=("GPT-2", "BERT", "OPT"),
        build=_learned,
        learned=True,
        any_length=False,
    ),
    Scheme(
        name="rotary",
        door="query_key",
        formula="q_i, k_j turned by p w_n in each pair of features,  w_n = theta^(-2n/head_dim)",
        paper="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding",
        url="https://arxiv.org/abs/2104.09864",
        year=2021,
        used_by=("Llama", "Qwen", "Mistral", "GPT-NeoX"),
        build=_rotary,
        relative=True,
        variants=(
            {"interleaved": True},
            {"rotary_dim": 8},
            {"rotary_dim": 8, "interleaved": True},
            {"theta": 500_000.0},
        ),
    ),
    Scheme(
        name="alibi",
        door="score",
        formula="score(h, i, j) += -m_h |i - j|,  m_h = 2^(-8h/H)",
        paper="Press et al., Train Short, Test Long: Attention with Linear Biases",
        url="https://arxiv.org/abs/2108.12409",
        year=2022,
        used_by=("BLOOM", "MPT"),
        build=_alibi,
        relative=True,
        near=128,
    ),
)

catalogue: Mapping[str, Scheme] = MappingProxyType({row.name: row for row in _ROWS})


def scheme(name: str, dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    """Build a scheme by name, or a mixture such as "rotary+alibi", one scheme a door.

    Args:
        name: a row of the catalogue, or rows joined by "+".
        dim: features of a token vector.
        num_heads: heads of the attention; must divide dim for schemes at the heads.
        max_length: rows of schemes that learn a table.
        options: further settings of the scheme, such as theta=500_000.0; not for mixtures.

    >>> scheme("rotary", dim=64, num_heads=4, max_length=128)
    Where(query_key=Rotary(head_dim=16, theta=10000.0, interleaved=False, rotary_dim=16))
    """
    require_whole("scheme", dim=dim, num_heads=num_heads, max_length=max_length)
    if not isinstance(name, str):
        raise UnknownScheme(
            f"a scheme is asked for by name, but got {name!r}.\nThe catalogue holds: {', '.join(catalogue)}."
        )
    names = [part.strip() for part in name.split("+")]
    if len(names) > 1 and options:
        raise SettingError(
            f"options {sorted(options)} cannot be told apart in the mixture {name!r}: build it with Where(...)."
        )
    parts = []
    for part in names:
        try:
            parts.append(_row(part).build(dim, num_heads, max_length, **options))
        except TypeError as problem:
            raise SettingError(f"{part!r} does not take these options: {problem}.") from problem
    return parts[0] if len(parts) == 1 else _mix(name, parts)


def describe(row: Scheme) -> dict[str, Any]:
    """Give the facts of a row as JSON holds them.

    >>> describe(catalogue["alibi"])["door"]
    'score'
    """
    return {
        field.name: list(value) if isinstance(value := getattr(row, field.name), tuple) else value
        for field in fields(row)
        if field.name not in ("build", "variants")
    }


def _row(name: str) -> Scheme:
    if name in catalogue:
        return catalogue[name]
    near = get_close_matches(name.lower(), catalogue, n=3)
    hint = f"Did you mean {' or '.join(near)}?\n" if near else ""
    raise UnknownScheme(f"the catalogue holds no scheme {name!r}.\n{hint}It holds: {', '.join(catalogue)}.")


def _mix(name: str, parts: list[Where]) -> Where:
    doors: dict[str, Any] = {}
    for part in parts:
        for door in ("input", "query_key", "score"):
            taken = getattr(part, door)
            if taken is not None and door in doors:
                raise SettingError(f"the mixture {name!r} has two schemes at the door {door!r}; each door takes one.")
            if taken is not None:
                doors[door] = taken
    return Where(**doors)
