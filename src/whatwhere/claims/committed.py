"""Verdicts that the committed evidence gives the claims that training decides: a test judges the evidence again."""

from collections.abc import Mapping

from whatwhere.claims.claim import Verdict

COMMITTED: Mapping[str, tuple[Verdict, str]] = {
    "0.11": ("depends", "E1"),
    "0.11c": ("fails", "E1"),
    "0.11d": ("depends", "E1"),
    "0.12": ("depends", "E1"),
    "0.13": ("depends", "E1"),
    "0.14c": ("holds", "E1"),
    "0.18b": ("fails", "E1"),
    "0.22b": ("fails", "E1"),
    "0.29b": ("fails", "E1"),
    "0.31": ("fails", "E1"),
    "0.32b": ("holds", "E1"),
    "2.6b": ("holds", "E1"),
    "2.8": ("fails", "E1"),
    "2.12": ("fails", "E1"),
    "3.10": ("holds", "E13"),
}
"""By id of the claim: the verdict, and the experiment whose runs gave it, the first in which any are judged."""
