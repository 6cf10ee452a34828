"""The errors. Each message has what was given, what is needed and why, and the way out.

    WhatWhereError
    ├── ShapeError       (ValueError)    a size that does not fit: odd dimension, heads that do not divide
    ├── SettingError     (ValueError)    an option outside its range, or two that exclude each other
    ├── PositionError    (IndexError)    a position that is negative, or beyond a table
    ├── TokenError       (IndexError)    an id outside the vocabulary, or ids that are not whole numbers
    ├── TextError        (ValueError)    a text that is empty, a file that is missing or is not UTF-8
    ├── DoorError        (TypeError)     a scheme at the wrong door, or two at one
    ├── UnknownScheme    (LookupError)   a scheme's name that is not in the catalogue
    ├── ResultsError     (ValueError)    a results folder of another comparison, or one that cannot be read
    ├── CheckpointError  (ValueError)    a model file that cannot be trusted or understood
    └── MissingExtra     (ImportError)   an optional package that is not installed

Each is also the built-in error that a caller would expect, so `except ValueError` catches it too. One warning is beside
them: `RandomPositionsWarning`, a UserWarning.
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
