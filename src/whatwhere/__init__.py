"""The input layer of a Transformer: token embeddings (what a token is) and positional encodings (where it is).

x_i         = what(token_i) + input(p_i)
score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale + score(h, p_i, p_j)

Position enters at three places, which are called doors: `input`, `query_key` and `score`. `Where(Rotary(64), ALiBi(8))`
is the schemes of a layer, and `where.at(positions)` binds them to positions for a forward pass: a `Here`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whatwhere import errors as errors
from whatwhere.errors import WhatWhereError as WhatWhereError

if TYPE_CHECKING:
    from whatwhere import analysis as analysis
    from whatwhere import claims as claims
    from whatwhere import comparison as comparison
    from whatwhere import reference as reference
    from whatwhere import testing as testing
    from whatwhere.comparison import compare as compare
    from whatwhere.inspection import inspect as inspect
    from whatwhere.inspection.token_neighbors import analogy as analogy
    from whatwhere.inspection.token_neighbors import neighbors as neighbors
    from whatwhere.kernels.backend import pytorch_only as pytorch_only
    from whatwhere.models import rotary_layout as rotary_layout
    from whatwhere.models.checkpoint import Checkpoint as Checkpoint
    from whatwhere.models.checkpoint import read as read
    from whatwhere.models.huggingface import from_huggingface as from_huggingface
    from whatwhere.models.huggingface import to_huggingface as to_huggingface
    from whatwhere.models.huggingface.patch import patch as patch
    from whatwhere.models.load_where import load_where as load_where
    from whatwhere.models.parameter_count import parameters as parameters
    from whatwhere.position import Positions as Positions
    from whatwhere.position import positions as positions
    from whatwhere.studio.export import export as export
    from whatwhere.studio.notebook import show as show
    from whatwhere.what import text as text
    from whatwhere.what.embedding import TokenEmbedding as TokenEmbedding
    from whatwhere.what.row_adamw.optimizer import RowAdamW as RowAdamW
    from whatwhere.where import frequencies as frequencies
    from whatwhere.where import scaling as scaling
    from whatwhere.where.base import InputEncoding as InputEncoding
    from whatwhere.where.base import QueryKeyMap as QueryKeyMap
    from whatwhere.where.binding import Here as Here
    from whatwhere.where.binding import Where as Where
    from whatwhere.where.binding import bind as bind
    from whatwhere.where.catalogue import catalogue as catalogue
    from whatwhere.where.catalogue import scheme as scheme
    from whatwhere.where.input.axial_sinusoidal import AxialSinusoidal as AxialSinusoidal
    from whatwhere.where.input.fourier import Fourier as Fourier
    from whatwhere.where.input.learned import Learned as Learned
    from whatwhere.where.input.sinusoidal import Sinusoidal as Sinusoidal
    from whatwhere.where.input_layer import InputLayer as InputLayer
    from whatwhere.where.query_key.axial_rotary import AxialRotary as AxialRotary
    from whatwhere.where.query_key.fope import FoPE as FoPE
    from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary as MultimodalRotary
    from whatwhere.where.query_key.pope import PoPE as PoPE
    from whatwhere.where.query_key.rotary import Rotary as Rotary
    from whatwhere.where.query_key.ssmax import SSMax as SSMax
    from whatwhere.where.query_key.xpos import XPos as XPos
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
    from whatwhere.where.score_bias import ScoreBias as ScoreBias

__version__ = "0.1.0"

# Loaded when first used: torch takes two seconds to import, and `whatwhere --help` needs none of it.
_HOME = {
    "ALiBi": "where.score.alibi",
    "AxialRotary": "where.query_key.axial_rotary",
    "AxialSinusoidal": "where.input.axial_sinusoidal",
    "Checkpoint": "models.checkpoint",
    "CoPE": "where.score.cope",
    "DeBERTa": "where.score.deberta",
    "FIRE": "where.score.fire",
    "FoPE": "where.query_key.fope",
    "FoX": "where.score.fox",
    "Fourier": "where.input.fourier",
    "Here": "where.binding",
    "InputEncoding": "where.base",
    "InputLayer": "where.input_layer",
    "KERPLE": "where.score.kerple",
    "Learned": "where.input.learned",
    "MultimodalRotary": "where.query_key.multimodal_rotary",
    "PoPE": "where.query_key.pope",
    "Positions": "position",
    "QueryKeyMap": "where.base",
    "Rotary": "where.query_key.rotary",
    "RowAdamW": "what.row_adamw.optimizer",
    "SSMax": "where.query_key.ssmax",
    "Sandwich": "where.score.sandwich",
    "ScoreBias": "where.score_bias",
    "Shaw": "where.score.shaw",
    "Sinusoidal": "where.input.sinusoidal",
    "T5": "where.score.t5",
    "TokenEmbedding": "what.embedding",
    "TransformerXL": "where.score.transformer_xl",
    "Where": "where.binding",
    "XPos": "where.query_key.xpos",
    "analogy": "inspection.token_neighbors",
    "bind": "where.binding",
    "catalogue": "where.catalogue",
    "compare": "comparison",
    "export": "studio.export",
    "from_huggingface": "models.huggingface",
    "inspect": "inspection",
    "load_where": "models.load_where",
    "neighbors": "inspection.token_neighbors",
    "parameters": "models.parameter_count",
    "patch": "models.huggingface.patch",
    "pytorch_only": "kernels.backend",
    "positions": "position",
    "read": "models.checkpoint",
    "scheme": "where.catalogue",
    "show": "studio.notebook",
    "to_huggingface": "models.huggingface",
}
_MODULES = {
    "analysis": "analysis",
    "claims": "claims",
    "comparison": "comparison",
    "frequencies": "where.frequencies",
    "reference": "reference",
    "rotary_layout": "models.rotary_layout",
    "scaling": "where.scaling",
    "testing": "testing",
    "text": "what.text",
}

__all__ = ["WhatWhereError", "__version__", "errors", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    """Return a public name, loaded from the module that defines it."""
    if name in _MODULES:
        value: Any = import_module(f"whatwhere.{_MODULES[name]}")
    elif name in _HOME:
        value = getattr(import_module(f"whatwhere.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'whatwhere' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
