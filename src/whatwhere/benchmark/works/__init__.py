"""The works, each in a file of its own."""

from whatwhere.benchmark.work import Work
from whatwhere.benchmark.works import (
    attention,
    decoding,
    lookup,
    neighbors,
    position_table,
    rotary,
    start,
    token_step,
    training,
)

WORKS: dict[str, Work] = {
    module.WORK.name: module.WORK
    for module in (rotary, lookup, token_step, attention, position_table, decoding, neighbors, start, training)
}
"""By name, in the order of the table."""
