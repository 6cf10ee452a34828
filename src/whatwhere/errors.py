"""The errors. Each message has what was given, what is needed and why, and the way out.

Each is also the built-in error that a caller would expect, so `except ValueError` catches it too. Two warnings are
beside them, `RandomPositionsWarning` and `RegimeWarning`: each a UserWarning.
"""


class WhatWhereError(Exception):
    """The base of all errors that this library raises on purpose."""


class ShapeError(WhatWhereError, ValueError):
    """A size does not fit: an odd dimension, heads that do not divide, tensors that do not match."""


class SettingError(WhatWhereError, ValueError):
    """An option lies outside its range, or excludes another."""


class PositionError(WhatWhereError, IndexError):
    """A position is negative, or beyond the table of a scheme."""


class TokenError(WhatWhereError, IndexError):
    """An id lies outside the vocabulary, or ids are not whole numbers."""


class TextError(WhatWhereError, ValueError):
    """A text is empty, or a file is missing, unreadable or not UTF-8."""


class DoorError(WhatWhereError, TypeError):
    """A scheme is at the wrong door (the point at which position enters a model), or two are at one."""


class UnknownScheme(WhatWhereError, LookupError):
    """The catalogue has no scheme of this name; the message lists similar names."""


class ResultsError(WhatWhereError, ValueError):
    """A results folder belongs to another comparison, or cannot be read."""


class CheckpointError(WhatWhereError, ValueError):
    """A model file cannot be trusted or understood."""


class MissingExtra(WhatWhereError, ImportError):
    """An optional package is not installed; the message names the extra that installs it."""


class RandomPositionsWarning(UserWarning):
    """A model trained at random positions is evaluated at 0, 1, 2, ..., where scores are lower."""


class RegimeWarning(UserWarning):
    """A step of decoding has other rotary frequencies than keys in the KV cache: the text passed the trained length."""
