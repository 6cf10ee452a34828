"""The input layer of a Transformer: token embeddings (what a token is) and positional encodings (where it is).

x_i         = what(token_i) + input(p_i)
score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale + score(h, p_i, p_j)

Position enters at three places, which are called doors: `input`, `query_key` and `score`. `Where(Rotary(64), ALiBi(8))`
is the schemes of a layer, and `where.at(positions)` binds them to positions for a forward pass: a `Here`.
"""

import sys
from importlib import import_module
from typing import Any

from whatwhere.public_names import attach

__version__ = "0.2.0"

# Names are loaded when first used: torch takes two seconds to import, and `whatwhere --help` needs none of it.
__getattr__, __dir__, __all__ = attach(__name__, __file__)
__all__ += ["__version__"]


def load_ipython_extension(shell: Any) -> None:
    """Show results as tables and figures in this shell of IPython; a notebook that imports whatwhere needs no call."""
    import_module("whatwhere.report.notebook").register(shell)


def _in_notebook() -> Any:
    """Return the shell of IPython that runs this process, or None; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


if (_shell := _in_notebook()) is not None:
    load_ipython_extension(_shell)
