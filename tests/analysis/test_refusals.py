"""What the functions of arrays refuse, with the reason."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.refusals import require_refused, short_refusals
from whatwhere.analysis.added_positions import trained_positions, variance_split
from whatwhere.analysis.biases import effective_range
from whatwhere.analysis.diagnostics import diagnostics, initial_scale
from whatwhere.analysis.nearest_neighbors import Search, analogy, answers, neighbors
from whatwhere.analysis.pca import principal_components, spectrum
from whatwhere.analysis.position_similarity import similarity
from whatwhere.analysis.rotary import rotary_agreement, rotary_spectrum
from whatwhere.analysis.table_difference import movement, overlap, procrustes
from whatwhere.analysis.token_map import group_neighbors, make_map, parse_groups
from whatwhere.analysis.walkthrough import walk
from whatwhere.what.expressions import expression_tokenizer

REFUSALS = r"""
analogy(eye, 0, 1, 9) -> TokenError: id 9 is outside
analogy(eye, 0, 1, 2, rule="divide") -> SettingError: need one of: add, multiply
answers(Search(eye, "dot"), [0, 1, 2], 1, "add") -> SettingError: search by cosine
neighbors(eye, 4) -> TokenError: id 4 is outside the table, which has 4 rows
neighbors(eye, 0.5) -> TokenError: whole numbers
neighbors(eye, 0, k=0) -> SettingError: k=0
Search(eye, "manhattan") -> SettingError: knows only: cosine, dot, euclidean
Search(eye).nearest(eye[0]) -> ShapeError: queries have shape (4,)
Search(eye[0]) -> ShapeError: shape (rows, dim)
Search(broken) -> SettingError: row 1 of the table holds numbers that are not finite
Search(eye).nearest(broken) -> SettingError: a query holds numbers that are not finite
effective_range(eye[0]) -> ShapeError: heads, distances
effective_range(eye, share=1) -> SettingError: share=1
effective_range(broken) -> SettingError: not finite
effective_range(eye + np.inf) -> SettingError: not finite
effective_range(eye - np.inf) -> SettingError: not finite
principal_components(eye, 0) -> SettingError: count is 0
principal_components(broken) -> SettingError: not finite
principal_components(np.zeros(3)) -> ShapeError: (rows, dim)
principal_components(np.zeros((0, 4))) -> ShapeError: (rows, dim)
principal_components(np.zeros((4, 0))) -> ShapeError: (rows, dim)
principal_components(np.zeros((2, 2, 2))) -> ShapeError: (rows, dim)
spectrum(eye[:1]) -> ShapeError: two rows or more
spectrum(broken) -> SettingError: not finite
similarity(torch.ones(2, 3), torch.ones(2, 4)) -> ShapeError: vectors of the same dim, but got (2, 3) and (2, 4)
rotary_spectrum(eye[0], np.ones(3), 10) -> ShapeError: 4 pairs
rotary_spectrum(np.ones(0), np.ones(0), 10) -> ShapeError: 0 pairs
rotary_spectrum(-eye[0], eye[0], 10) -> SettingError: 0 or more
rotary_spectrum(eye[0], eye[0], 0) -> SettingError: trained=0
rotary_agreement(broken[1], eye[0], [1]) -> SettingError: 0 or more
variance_split(np.ones((2, 3)), eye) -> ShapeError: the same dim
trained_positions(eye[:1]) -> ShapeError: table of positions
diagnostics(eye[0]) -> ShapeError: (rows, dim)
initial_scale(eye[0], np.arange(0)) -> ShapeError: (rows, dim)
movement(table, table[:9]) -> ShapeError: same shape
procrustes(table[:47], table[:47]) -> SettingError: needs 48 rows
procrustes(table, table[:, :4]) -> ShapeError: same shape
overlap(table, table, k=0) -> SettingError: but needs 2, 1 and 1 or more
overlap(table, table, queries=0) -> SettingError: but needs 2, 1 and 1 or more
overlap(table[:1], table[:1]) -> SettingError: overlap got 1 rows
overlap(table, table[:9]) -> ShapeError: as many rows
make_map(table, "mds") -> SettingError: knows only: pca, tsne, umap
make_map(eye[:2]) -> ShapeError: finite rows, but got the shape
make_map(table[:15], "tsne") -> ShapeError: finite rows, but got the shape
make_map(table[:, :0]) -> ShapeError: finite rows, but got the shape
make_map(eye[0]) -> ShapeError: finite rows, but got the shape
make_map(table[:1] + 0 * table) -> SettingError: all rows of the table are equal
make_map(broken) -> SettingError: not finite
make_map(np.tile(broken, (5, 1)), "tsne") -> SettingError: not finite
group_neighbors(eye[:1], [0]) -> ShapeError: one for each row
group_neighbors(eye, [0, 1]) -> ShapeError: one for each row
parse_groups("") -> SettingError: no tokens are named
parse_groups(" , ;") -> SettingError: no tokens are named
parse_groups("a:") -> SettingError: no tokens are named
parse_groups("a: x; a: y") -> SettingError: two groups
walk() -> TextError: needs either a text or ids
walk("a", ids=[1]) -> TextError: needs either a text or ids
walk(" \n") -> TextError: the text is empty
walk(ids=[]) -> TokenError: ids is empty
walk(ids=[4, -2]) -> TokenError: id -2 at (1,) is negative
walk(ids=[20], tokenizer=expression_tokenizer()) -> TokenError: id 20 is unknown to this tokenizer, which has 20
walk(ids=[7], vocab_size=7) -> TokenError: id 7 at (0
walk("a", scheme="rotery") -> UnknownScheme: Did you mean rotary
walk("a", dim=7) -> ShapeError: dim=7, but needs an even number
walk("a", scheme="alibi", dim=8, num_heads=3) -> ShapeError: does not divide
walk(ids=[2**28], dim=8) -> SettingError: 8.6 GB, more than 1 GB
walk("a", scheme="learned", dim=2**40) -> SettingError: GB, more than 1 GB
walk("a").save("no-such-folder/walk") -> SettingError: no-such-folder … cannot be written … Choose another file
"""

NAMES: dict[str, Any] = {
    each.__name__: each
    for each in (
        trained_positions, variance_split, analogy, answers, effective_range, diagnostics, initial_scale, Search,
        neighbors, principal_components, spectrum, similarity, rotary_agreement, rotary_spectrum, movement, overlap,
        procrustes, group_neighbors, make_map, parse_groups, walk, expression_tokenizer,
    )
}  # fmt: skip


@short_refusals(REFUSALS)
@pytest.mark.usefixtures("our_own_checks")
def test_wrong_input_is_refused(call: str, error: str, parts: str) -> None:
    broken = np.eye(4)
    broken[1, 1] = np.nan
    table = np.random.default_rng(0).standard_normal((300, 12)).astype(np.float32)
    require_refused(
        call, error, parts, {**NAMES, "np": np, "torch": torch, "eye": np.eye(4), "broken": broken, "table": table}
    )
