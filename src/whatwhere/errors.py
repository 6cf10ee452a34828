"""The errors, each with what was given, what is needed and why, and the way out.

    WhatWhereError
    ├── ShapeError       (ValueError)    a size that does not fit: odd dimension, heads that do not divide
    ├── SettingError     (ValueError)    an option outside its range, or two options that exclude each other
    ├── PositionError    (IndexError)    a position that is negative, or beyond a table
    ├── TokenError       (IndexError)    an id outside the vocabulary, or ids that are not whole numbers
    ├── TextError        (ValueError)    a text that is empty, a file that is missing or is not UTF-8
    ├── DoorError        (TypeError)     a scheme handed to the wrong door
    ├── UnknownScheme    (LookupError)   a name that the catalogue does not hold
    ├── ResultsError     (ValueError)    a results folder of another comparison, or one that cannot be read
    ├── CheckpointError  (ValueError)    a model file that cannot be trusted or understood
    └── MissingExtra     (ImportError)   an optional package that is not installed

Each one is also the built-in error that a caller would expect, so `except ValueError` keeps working.
"""


class WhatWhereError(Exception):
    """The root: catch it to catch every error that this library raises on purpose."""


class ShapeError(WhatWhereError, ValueError):
    """A size does not fit: an odd dimension, heads that do not divide, tensors that do not match."""


class SettingError(WhatWhereError, ValueError):
    """An option lies outside its range, or excludes another."""


class PositionError(WhatWhereError, IndexError):
    """A position is negative, or beyond what a scheme holds."""


class TokenError(WhatWhereError, IndexError):
    """An id lies outside the vocabulary, or ids are not whole numbers."""


class TextError(WhatWhereError, ValueError):
    """A text is empty, or a file is missing, unreadable or not UTF-8."""


class DoorError(WhatWhereError, TypeError):
    """A scheme was handed to a door that it does not pass through."""


class UnknownScheme(WhatWhereError, LookupError):
    """The catalogue holds no scheme of this name; the message lists near names."""


class ResultsError(WhatWhereError, ValueError):
    """A results folder belongs to another comparison, or cannot be read."""


class CheckpointError(WhatWhereError, ValueError):
    """A model file cannot be trusted or understood."""


class MissingExtra(WhatWhereError, ImportError):
    """An optional package is needed and not installed; the message names the extra."""
