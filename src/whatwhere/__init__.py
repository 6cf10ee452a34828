"""The input layer of a Transformer: what a token is, and where it stands.

x_i         = what(token_i) + input(p_i)
score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale + score(h, p_i, p_j)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whatwhere import errors as errors
from whatwhere.errors import CheckpointError as CheckpointError
from whatwhere.errors import DoorError as DoorError
from whatwhere.errors import MissingExtra as MissingExtra
from whatwhere.errors import PositionError as PositionError
from whatwhere.errors import ResultsError as ResultsError
from whatwhere.errors import SettingError as SettingError
from whatwhere.errors import ShapeError as ShapeError
from whatwhere.errors import TextError as TextError
from whatwhere.errors import TokenError as TokenError
from whatwhere.errors import UnknownScheme as UnknownScheme
from whatwhere.errors import WhatWhereError as WhatWhereError

if TYPE_CHECKING:
    from whatwhere.analysis.similarity import similarity as similarity
    from whatwhere.analysis.size import parameters as parameters
    from whatwhere.comparison import compare as compare
    from whatwhere.layer import InputLayer as InputLayer
    from whatwhere.ruler import Positions as Positions
    from whatwhere.ruler import from_mask as from_mask
    from whatwhere.ruler import from_position_ids as from_position_ids
    from whatwhere.ruler import grid as grid
    from whatwhere.ruler import packed as packed
    from whatwhere.ruler import positions as positions
    from whatwhere.ruler import randomized as randomized
    from whatwhere.what import text as text
    from whatwhere.what.embedding import TokenEmbedding as TokenEmbedding
    from whatwhere.where import frequencies as frequencies
    from whatwhere.where.binding import Here as Here
    from whatwhere.where.binding import Where as Where
    from whatwhere.where.binding import bind as bind
    from whatwhere.where.catalogue import Scheme as Scheme
    from whatwhere.where.catalogue import catalogue as catalogue
    from whatwhere.where.catalogue import scheme as scheme
    from whatwhere.where.doors import DistanceBias as DistanceBias
    from whatwhere.where.doors import InputEncoding as InputEncoding
    from whatwhere.where.doors import QueryKeyMap as QueryKeyMap
    from whatwhere.where.doors import ScoreBias as ScoreBias
    from whatwhere.where.input.learned import Learned as Learned
    from whatwhere.where.input.sinusoidal import Sinusoidal as Sinusoidal
    from whatwhere.where.query_key.rotary import Rotary as Rotary
    from whatwhere.where.scaling import NTK as NTK
    from whatwhere.where.scaling import DynamicNTK as DynamicNTK
    from whatwhere.where.scaling import Linear as Linear
    from whatwhere.where.scaling import Llama3 as Llama3
    from whatwhere.where.scaling import LongRoPE as LongRoPE
    from whatwhere.where.scaling import Proportional as Proportional
    from whatwhere.where.scaling import Scaling as Scaling
    from whatwhere.where.scaling import YaRN as YaRN
    from whatwhere.where.score.alibi import ALiBi as ALiBi

__version__ = "0.1.0"

# Loaded when first used: torch takes two seconds to import, and `whatwhere --help` needs none of it.
_HOME = {
    "ALiBi": "where.score.alibi",
    "DistanceBias": "where.doors",
    "DynamicNTK": "where.scaling",
    "Here": "where.binding",
    "InputEncoding": "where.doors",
    "InputLayer": "layer",
    "Learned": "where.input.learned",
    "Linear": "where.scaling",
    "Llama3": "where.scaling",
    "LongRoPE": "where.scaling",
    "NTK": "where.scaling",
    "Positions": "ruler",
    "Proportional": "where.scaling",
    "QueryKeyMap": "where.doors",
    "Rotary": "where.query_key.rotary",
    "Scaling": "where.scaling",
    "Scheme": "where.catalogue",
    "ScoreBias": "where.doors",
    "Sinusoidal": "where.input.sinusoidal",
    "TokenEmbedding": "what.embedding",
    "Where": "where.binding",
    "YaRN": "where.scaling",
    "bind": "where.binding",
    "catalogue": "where.catalogue",
    "compare": "comparison",
    "frequencies": "where.frequencies",
    "from_mask": "ruler",
    "from_position_ids": "ruler",
    "grid": "ruler",
    "packed": "ruler",
    "parameters": "analysis.size",
    "positions": "ruler",
    "randomized": "ruler",
    "scheme": "where.catalogue",
    "similarity": "analysis.similarity",
    "text": "what.text",
}

__all__ = [
    "CheckpointError",
    "DoorError",
    "MissingExtra",
    "PositionError",
    "ResultsError",
    "SettingError",
    "ShapeError",
    "TextError",
    "TokenError",
    "UnknownScheme",
    "WhatWhereError",
    "__version__",
    "errors",
    *_HOME,
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOME:
        raise AttributeError(f"module 'whatwhere' has no attribute {name!r}")
    module = import_module(f"whatwhere.{_HOME[name]}")
    value = module if name in ("frequencies", "text") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
