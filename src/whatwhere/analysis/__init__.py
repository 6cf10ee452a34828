"""Analysis of token tables and positional encodings: functions of arrays with typed results."""

from whatwhere.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)  # when first used: reading needs no torch
