"""Verdicts that the committed evidence gives the claims that training decides: a test judges the evidence again."""

from collections.abc import Mapping

from experiments.tutorials.claim import Verdict

COMMITTED: Mapping[str, tuple[Verdict, str]] = {
    "0.6b": ("fails", "E4"),
    "0.7b": ("fails", "E4"),
    "0.11": ("depends", "E1"),
    "0.11b": ("depends", "E1"),
    "0.11c": ("fails", "E1"),
    "0.11d": ("depends", "E1"),
    "0.12": ("depends", "E1"),
    "0.13": ("depends", "E1"),
    "0.14": ("fails", "E16"),
    "0.14b": ("fails", "E16"),
    "0.14c": ("holds", "E1"),
    "0.15": ("fails", "E4"),
    "0.18b": ("fails", "E1"),
    "0.22b": ("fails", "E1"),
    "0.31": ("fails", "E1"),
    "0.31b": ("fails", "E3"),
    "0.32b": ("holds", "E1"),
    "0.33b": ("fails", "E16"),
    "0.35": ("fails", "E4"),
    "0.38": ("fails", "E4"),
    "0.39": ("holds", "E16"),
    "2.6b": ("holds", "E1"),
    "2.8": ("fails", "E1"),
    "2.8b": ("fails", "E3"),
    "2.12": ("fails", "E1"),
    "2.12b": ("holds", "E3"),
    "2.13": ("holds", "E4"),
    "3.10": ("holds", "E13"),
    "4.13": ("holds", "E4"),
}
"""By id of the claim: the verdict, and the experiment whose runs gave it, the first in which any are judged."""
