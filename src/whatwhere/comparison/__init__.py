"""Train schemes side by side, test them in and beyond the trained length, and return what was measured as data."""

from whatwhere.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)  # when first used: reading needs no torch
