"""What the laws are tested on: every row of the catalogue with every variant, and mixtures."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.where.catalogue import Scheme
from whatwhere.where.region_map import region_map_of

DIM, HEADS, KEY_HEADS, MAX_LENGTH = 64, 4, 2, 64
LEFT = torch.tensor([[1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]], dtype=torch.bool)
"""Two sequences, of which one begins with padding."""
VARIANTS = """
sinusoidal: layout='half'; layout='tensor2tensor'; theta=500.0; cosines_first=True;
    layout='tensor2tensor', cosines_first=True
sinusoidal-axial: axes=3; layout='half'; axes=3, layout='tensor2tensor'; theta=500.0
fourier: axes=2; features=16; hidden=24; width=2.0
learned: offset=2
rotary: interleaved=True; rotary_dim=8; rotary_dim=8, interleaved=True; rotary_dim=8, rotary_start=3;
    rotary_start=4, interleaved=True; reversed=True; theta=500000.0
rotary-linear: factor=2.0; theta=500000.0, interleaved=True
rotary-ntk: factor=16.0; rotary_dim=8
rotary-dynamic-ntk: factor=2.0; original_length=32; factor=2.0, original_length=48, doubling=True
rotary-yarn: attention_factor=1.0; truncate=False; mscale=2.0, mscale_all_dim=1.0; beta_fast=2.0, beta_slow=0.1
rotary-longrope: factor=16.0; attention_factor=1.0
rotary-llama3: factor=32.0; low_frequency_factor=0.01, high_frequency_factor=16.0
rotary-proportional: share=0.25; factor=8.0; share=0.25, interleaved=True
rotary-learned: interleaved=True; rotary_dim=2, rotary_start=1; theta=500000.0
rotary-axial: interleaved=True; theta=100.0; axes=4
rotary-mixed: interleaved=True; theta=100.0
rotary-multimodal: layout='interleaved'; rotary_dim=16, sections=(2, 3, 3);
    rotary_dim=12, sections=(2, 2, 2), layout='interleaved'; interleaved=True
rotary-self-extend: window=3, group_size=3; window=2, group_size=3, interleaved=True;
    window=4, group_size=2, rotary_dim=8, theta=500000.0
rotary-dual-chunk: chunk_size=3, max_distance=4; chunk_size=2, max_distance=2, interleaved=True;
    chunk_size=3, max_distance=7, rotary_dim=8
xpos: interleaved=True; scale_base=1024.0, center=4; theta=500000.0
pope: theta=500.0
fope: interleaved=True; sets=1; original_length=5000; theta=100.0
carope: interleaved=True; theta=100.0
selective-rope: gate=True; gate=True, interleaved=True; theta=1.0, rank=4
ssmax: then='rotary'; then='pope'; original_length=20
temperature: then='rotary'; curve='stepped', period=3; curve='stepped', period=2, offset=0, alpha=0.5;
    curve='clamped', length=2; curve='logn', original_length=2; exponent=0.5
kerple: kind='power'
sandwich: sinusoid_dim=16; theta=500.0
fire: width=16; c=1.0
cope: std=0.5; std=0.5, max_distance=3; std=0.5, scale=1.0
inkling: features=4, std=0.5; extent=5, std=0.5; max_norm=0.5, std=0.5
t5: num_buckets=7, max_distance=9; bidirectional=True, num_buckets=8, max_distance=6; scale=None
shaw: max_distance=3, max_future_distance=16; max_distance=2, max_future_distance=0
swin: window_size=3; window_size=(12, 2); std=0.5
swin-v2: hidden=16; window_size=3; window_size=12, trained_size=4
sam: window_size=3; window_size=(12, 2); std=0.5
transformer-xl: theta=100.0
deberta: max_distance=9, position_buckets=6; max_distance=3; terms=('c2p',); terms=('p2c',)
"""
"""Further options of each row with which the laws are tested."""
REGIME = 4 * MAX_LENGTH
"""The length that is stated to schemes that follow it: beyond the trained one, where they differ from plain rotary."""


def _read(table: str) -> dict[str, list[dict[str, Any]]]:
    rows = re.findall(r"^(\S+): ((?:.|\n )+)$", table, re.MULTILINE)
    return {name: [eval(f"dict({options})") for options in text.split(";")] for name, text in rows}


OPTIONS = _read(VARIANTS)


def variants(row: Scheme) -> list[dict[str, Any]]:
    """Return the options with which a row is tested: none, and those of VARIANTS."""
    return [{}, *OPTIONS.get(row.name, [])]


@dataclass(frozen=True)
class Case:
    """A row of the catalogue with one choice of options."""

    row: Scheme
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        settings = ",".join(f"{option}={value}" for option, value in self.options.items())
        return f"{self.row.name}[{settings}]" if settings else self.row.name

    def build(self, dim: int = DIM, num_heads: int = HEADS, max_length: int = MAX_LENGTH) -> ww.Where:
        return self.row.build(dim, num_heads, max_length, **self.options)

    @property
    def regime(self) -> int | None:
        """What a law that holds within one regime states; None where the length is no matter."""
        return REGIME if self.row.follows_length else None

    @property
    def axes(self) -> int:
        """How many coordinates of a token it reads; positions with one axis serve for all."""
        where = self.build()
        return max(getattr(scheme, "axes", 1) for scheme in (where.input, where.query_key, where.score))

    @property
    def by_content(self) -> bool:
        where = self.build()
        return any(scheme.by_content for scheme in (where.query_key, where.score) if scheme is not None)

    @property
    def by_region(self) -> bool:
        """It maps queries and keys otherwise in some regions of pairs."""
        return region_map_of(self.build().query_key) is not None

    @property
    def causal_only(self) -> bool:
        """It supports causal attention only; an option may lift what the entry states, as T5's bidirectional does."""
        where = self.build()
        return any(scheme.causal_only for scheme in (where.query_key, where.score) if scheme is not None)

    def sees_distances_only(self, end: int) -> bool:
        """While all positions stay below the end, moving them changes no score."""
        return self.row.relative or end <= self.row.relative_below


def mixture(*names: str) -> Scheme:
    """A row for several schemes at once, with the facts that follow from theirs."""
    rows = [ww.catalogue[name] for name in names]
    joined = "+".join(names)
    return replace(
        rows[0],
        name=joined,
        door=None,
        build=lambda dim, num_heads, max_length: ww.scheme(joined, dim, num_heads, max_length),
        learned=any(row.learned for row in rows),
        relative=all(row.relative for row in rows),
        relative_below=min((row.relative_below for row in rows if not row.relative), default=0),
        any_length=all(row.any_length for row in rows),
        causal_only=any(row.causal_only for row in rows),
        follows_length=any(row.follows_length for row in rows),
        keeps_norms=all(row.keeps_norms for row in rows),
        tested_up_to=min(row.tested_up_to for row in rows),
        distinct_up_to=None,
    )


ALL_ROWS = (*ww.catalogue.values(), mixture("rotary", "alibi"), mixture("learned", "rotary", "alibi"))
CASES = [Case(row, options) for row in ALL_ROWS for options in variants(row)]


def each(
    holds: Callable[[Case], bool] = lambda case: True, slow: Callable[[Case], bool] = lambda case: False
) -> pytest.MarkDecorator:
    """Parametrize a test over the cases of which something holds; there must be at least one that is not slow."""
    marks = {True: [pytest.mark.slow], False: []}
    chosen = [pytest.param(case, id=case.name, marks=marks[slow(case)]) for case in CASES if holds(case)]
    assert not all(case.marks for case in chosen), "no case is left: the law would be tested on nothing"
    return pytest.mark.parametrize("case", chosen)


def varied(case: Case) -> bool:
    """It is a row with other options than its own: what takes long is tested on the row alone, unless slow."""
    return bool(case.options)


def positional(case: Case) -> bool:
    """It has a scheme at some door."""
    return case.row.name != "none"


def fixed(case: Case) -> bool:
    """It has a scheme at some door, and no parameters."""
    return positional(case) and not case.row.learned
