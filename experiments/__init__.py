"""Experiments on what tutorials and papers claim, in a checkout: `python -m experiments`.

tutorials/       each claim of five tutorials: measured at once, or judged by the runs of a comparison
suite.py         the list of experiments, and the loop that runs, keeps and resumes them
*_page.py        docs/errata.md and docs/evidence.md
the other files  one experiment each, on bench.py, with statements of record.py
"""
