"""The benchmark: whatwhere and its peers on the same work, beside the limit that memory sets.

work.py        what a work is made of: cases, candidates
timing.py      how a time is taken
memory.py      two ways of allocating, and the peak
measure.py     one case: errors, times, peaks
run.py         all works, each regime in a process of its own (worker.py)
targets.py     what was aimed at, and whether it was met
works/         one file for each work
"""
