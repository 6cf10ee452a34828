"""The benchmark: whatwhere and its peers on the same cases, as ratios to the limit that memory sets.

Run it in the root of a checkout: `python -m benchmarks`. It uses the installed whatwhere, which does not depend on it.

case.py        what a benchmark is made of: cases, their variants, candidates
cases/         one file for each case
timing.py      how a time is measured
memory.py      two ways of allocating, and peaks of memory
numerics.py    sampled inputs, and errors against float64
peers.py       the other packages
measure.py     one variant: errors, times, peaks
run.py         all cases, each regime of allocation in a process of its own (worker.py)
gpu.py         tests and benchmark on a machine with a GPU and no network (make gpu), in order of worth (worth.py)
records.py     what is measured, as types: lines between processes, and the file of results
store.py       the file of results (results/)
machine.py     processor, versions, digest of the code
targets.py     targets, and whether they are met
table.py       results as rows of text; __main__.py prints them, speed.py writes docs/speed.md
"""
