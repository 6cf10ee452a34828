"""The input layer of a Transformer: token embeddings (what a token is) and positional encodings (where it is).

x_i         = what(token_i) + input(p_i)
score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale + score(h, p_i, p_j)

Position enters at three places, which are called doors: `input`, `query_key` and `score`. `Where(Rotary(64), ALiBi(8))`
is the schemes of a layer, and `where.at(positions)` binds them to positions for a forward pass: a `Here`.
"""

import sys
from importlib import import_module
from typing import Any

from whatwhere import errors as errors
from whatwhere.errors import WhatWhereError as WhatWhereError

__version__ = "0.2.0"

# Loaded when first used: torch takes two seconds to import, and `whatwhere --help` needs none of it. Type checkers and
# editors read __init__.pyi.
_HOME = {
    "ALiBi": "where.score.alibi",
    "AxialRotary": "where.query_key.axial_rotary",
    "AxialSinusoidal": "where.input.axial_sinusoidal",
    "CARoPE": "where.query_key.carope",
    "Checkpoint": "models.checkpoint",
    "CoPE": "where.score.cope",
    "DeBERTa": "where.score.deberta",
    "DualChunk": "where.query_key.dual_chunk",
    "FactorizedEmbedding": "what.model_tables",
    "FIRE": "where.score.fire",
    "FoPE": "where.query_key.fope",
    "FoX": "where.score.fox",
    "Fourier": "where.input.fourier",
    "HashedNGramEmbedding": "what.hashed_ngrams",
    "Here": "where.binding",
    "InputEncoding": "where.base",
    "Inkling": "where.score.inkling",
    "InputLayer": "where.input_layer",
    "KERPLE": "where.score.kerple",
    "Learned": "where.input.learned",
    "LearnedRotary": "where.query_key.learned_rotary",
    "MixedRotary": "where.query_key.mixed_rotary",
    "MultimodalRotary": "where.query_key.multimodal_rotary",
    "PerLayerEmbedding": "what.model_tables",
    "PoPE": "where.query_key.pope",
    "Positions": "position.positions",
    "QueryKeyMap": "where.base",
    "QueryTemperature": "where.query_key.query_temperature",
    "Rotary": "where.query_key.rotary",
    "RowAdamW": "what.row_adamw.optimizer",
    "SAM": "where.score.sam",
    "SSMax": "where.query_key.ssmax",
    "Sandwich": "where.score.sandwich",
    "ScoreBias": "where.score_bias",
    "SelectiveRoPE": "where.query_key.selective_rope",
    "SelfExtend": "where.query_key.self_extend",
    "Shaw": "where.score.shaw",
    "Sink": "where.sink",
    "Sinusoidal": "where.input.sinusoidal",
    "Swin": "where.score.swin",
    "SwinV2": "where.score.swin_v2",
    "T5": "where.score.t5",
    "TokenEmbedding": "what.embedding",
    "TransformerXL": "where.score.transformer_xl",
    "ValueEmbedding": "what.model_tables",
    "Where": "where.binding",
    "Window": "where.window",
    "XPos": "where.query_key.xpos",
    "analogy": "analysis.token_neighbors",
    "bind": "where.binding",
    "catalogue": "where.catalogue",
    "compare": "comparison",
    "export": "studio.export",
    "from_huggingface": "models.huggingface",
    "inspect": "analysis.inspection",
    "load_token_table": "models.token_tables",
    "load_where": "models.load_where",
    "neighbors": "analysis.token_neighbors",
    "parameters": "models.parameter_count",
    "patch": "models.huggingface.patch",
    "probe": "models.probe",
    "pytorch_only": "kernels.backend",
    "positions": "position.positions",
    "read": "models.checkpoint",
    "register_attention": "models.huggingface.attention",
    "scheme": "where.catalogue",
    "show": "studio.notebook",
}
_MODULES = {
    "analysis": "analysis",
    "comparison": "comparison",
    "frequencies": "where.frequencies",
    "reference": "reference",
    "rotary_layout": "models.rotary_layout",
    "scaling": "where.scaling",
    "temperature": "where.temperature",
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
        from whatwhere.public_names import missing_name

        raise missing_name(name, [*_HOME, *_MODULES])
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Show results as tables and figures in this shell of IPython; a notebook that imports whatwhere needs no call."""
    import_module("whatwhere.report.notebook").register(shell)


def _in_notebook() -> Any:
    """Return the shell of IPython that runs this process, or None; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


if (_shell := _in_notebook()) is not None:
    load_ipython_extension(_shell)
