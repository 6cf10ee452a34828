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
    from whatwhere import testing as testing
    from whatwhere.analysis.analogies import analogy as analogy
    from whatwhere.analysis.neighbors import neighbors as neighbors
    from whatwhere.analysis.similarity import similarity as similarity
    from whatwhere.analysis.size import parameters as parameters
    from whatwhere.comparison import compare as compare
    from whatwhere.drawn import RandomPositionsWarning as RandomPositionsWarning
    from whatwhere.drawn import abacus as abacus
    from whatwhere.drawn import assigned as assigned
    from whatwhere.drawn import random_offset as random_offset
    from whatwhere.drawn import randomized as randomized
    from whatwhere.interop import layout as layout
    from whatwhere.interop.checkpoint import Checkpoint as Checkpoint
    from whatwhere.interop.checkpoint import write_projector as write_projector
    from whatwhere.interop.huggingface import Description as Description
    from whatwhere.interop.huggingface import from_huggingface as from_huggingface
    from whatwhere.interop.huggingface import to_huggingface as to_huggingface
    from whatwhere.interop.patching import patch as patch
    from whatwhere.interop.reading import read as read
    from whatwhere.kernels.switch import plain_kernels as plain_kernels
    from whatwhere.layer import InputLayer as InputLayer
    from whatwhere.ruler import Positions as Positions
    from whatwhere.ruler import from_mask as from_mask
    from whatwhere.ruler import from_position_ids as from_position_ids
    from whatwhere.ruler import grid as grid
    from whatwhere.ruler import packed as packed
    from whatwhere.ruler import positions as positions
    from whatwhere.studio.showing import show as show
    from whatwhere.what import text as text
    from whatwhere.what.embedding import TokenEmbedding as TokenEmbedding
    from whatwhere.what.optimizer import RowAdamW as RowAdamW
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
    from whatwhere.where.input.axial_sinusoidal import AxialSinusoidal as AxialSinusoidal
    from whatwhere.where.input.fourier import Fourier as Fourier
    from whatwhere.where.input.learned import Learned as Learned
    from whatwhere.where.input.sinusoidal import Sinusoidal as Sinusoidal
    from whatwhere.where.query_key.axial_rotary import AxialRotary as AxialRotary
    from whatwhere.where.query_key.fope import FoPE as FoPE
    from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary as MultimodalRotary
    from whatwhere.where.query_key.pope import PoPE as PoPE
    from whatwhere.where.query_key.rotary import Rotary as Rotary
    from whatwhere.where.query_key.ssmax import SSMax as SSMax
    from whatwhere.where.query_key.xpos import XPos as XPos
    from whatwhere.where.scaling import NTK as NTK
    from whatwhere.where.scaling import DynamicNTK as DynamicNTK
    from whatwhere.where.scaling import Linear as Linear
    from whatwhere.where.scaling import Llama3 as Llama3
    from whatwhere.where.scaling import LongRoPE as LongRoPE
    from whatwhere.where.scaling import Proportional as Proportional
    from whatwhere.where.scaling import Scaling as Scaling
    from whatwhere.where.scaling import YaRN as YaRN
    from whatwhere.where.score.alibi import ALiBi as ALiBi
    from whatwhere.where.score.cope import CoPE as CoPE
    from whatwhere.where.score.deberta import DeBERTa as DeBERTa
    from whatwhere.where.score.fire import FIRE as FIRE
    from whatwhere.where.score.fox import FoX as FoX
    from whatwhere.where.score.kerple import KERPLE as KERPLE
    from whatwhere.where.score.sandwich import Sandwich as Sandwich
    from whatwhere.where.score.shaw import Shaw as Shaw
    from whatwhere.where.score.t5 import T5 as T5
    from whatwhere.where.score.transformer_xl import TransformerXL as TransformerXL

__version__ = "0.1.0"

# Loaded when first used: torch takes two seconds to import, and `whatwhere --help` needs none of it.
_HOME = {
    "ALiBi": "where.score.alibi",
    "AxialRotary": "where.query_key.axial_rotary",
    "AxialSinusoidal": "where.input.axial_sinusoidal",
    "Checkpoint": "interop.checkpoint",
    "CoPE": "where.score.cope",
    "DeBERTa": "where.score.deberta",
    "Description": "interop.huggingface",
    "DistanceBias": "where.doors",
    "DynamicNTK": "where.scaling",
    "FIRE": "where.score.fire",
    "FoPE": "where.query_key.fope",
    "FoX": "where.score.fox",
    "Fourier": "where.input.fourier",
    "Here": "where.binding",
    "InputEncoding": "where.doors",
    "InputLayer": "layer",
    "KERPLE": "where.score.kerple",
    "Learned": "where.input.learned",
    "Linear": "where.scaling",
    "Llama3": "where.scaling",
    "LongRoPE": "where.scaling",
    "MultimodalRotary": "where.query_key.multimodal_rotary",
    "NTK": "where.scaling",
    "PoPE": "where.query_key.pope",
    "Positions": "ruler",
    "Proportional": "where.scaling",
    "QueryKeyMap": "where.doors",
    "RandomPositionsWarning": "drawn",
    "Rotary": "where.query_key.rotary",
    "RowAdamW": "what.optimizer",
    "SSMax": "where.query_key.ssmax",
    "Sandwich": "where.score.sandwich",
    "Scaling": "where.scaling",
    "Scheme": "where.catalogue",
    "ScoreBias": "where.doors",
    "Shaw": "where.score.shaw",
    "Sinusoidal": "where.input.sinusoidal",
    "T5": "where.score.t5",
    "TokenEmbedding": "what.embedding",
    "TransformerXL": "where.score.transformer_xl",
    "Where": "where.binding",
    "XPos": "where.query_key.xpos",
    "YaRN": "where.scaling",
    "abacus": "drawn",
    "analogy": "analysis.analogies",
    "assigned": "drawn",
    "bind": "where.binding",
    "catalogue": "where.catalogue",
    "compare": "comparison",
    "frequencies": "where.frequencies",
    "from_huggingface": "interop.huggingface",
    "from_mask": "ruler",
    "from_position_ids": "ruler",
    "grid": "ruler",
    "layout": "interop.layout",
    "neighbors": "analysis.neighbors",
    "packed": "ruler",
    "parameters": "analysis.size",
    "patch": "interop.patching",
    "plain_kernels": "kernels.switch",
    "positions": "ruler",
    "random_offset": "drawn",
    "randomized": "drawn",
    "read": "interop.reading",
    "scheme": "where.catalogue",
    "show": "studio.showing",
    "similarity": "analysis.similarity",
    "testing": "testing",
    "text": "what.text",
    "to_huggingface": "interop.huggingface",
    "write_projector": "interop.checkpoint",
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
    value = module if name in ("frequencies", "layout", "testing", "text") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
