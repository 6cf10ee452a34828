"""The cases, each in a file of its own."""

from benchmarks.case import Case
from benchmarks.cases import (
    attention,
    decoding,
    lookup,
    loss,
    neighbors,
    position_table,
    rotary,
    start,
    token_step,
    training,
    window,
)

_MODULES = (
    rotary, lookup, token_step, attention, window, position_table, decoding, loss, neighbors, start, training,
)  # fmt: skip
CASES: dict[str, Case] = {module.CASE.name: module.CASE for module in _MODULES}
"""By name, in the order of the table."""
