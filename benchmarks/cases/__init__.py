"""The cases, each in a file of its own."""

from benchmarks.case import Case
from benchmarks.cases import (
    attention,
    decoding,
    lookup,
    neighbors,
    position_table,
    rotary,
    start,
    token_step,
    training,
    window,
)

CASES: dict[str, Case] = {
    module.CASE.name: module.CASE
    for module in (rotary, lookup, token_step, attention, window, position_table, decoding, neighbors, start, training)
}
"""By name, in the order of the table."""
