"""Public names that are loaded when they are first used: reading files and results does without PyTorch.

A name that people try, for something that has a different one here, is answered with that.
"""

import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORT = re.compile(r"^from ([\w.]+) import (\w+) as \2$", re.MULTILINE)
_ELSEWHERE = {
    "ww.Rotary(head_dim)": "rope rotaryembedding rotarypositionembedding rotarypositionalembedding"
    " rotarypositionalencoding rotarypositionalembeddings rotarype llamarotaryembedding applyrotaryposemb"
    " applyrotaryemb applyrope rotatehalf",
    "ww.AxialRotary": "axialrope rope2d rotary2d",
    "ww.MultimodalRotary": "mrope multimodalrope mropeembedding",
    "ww.scaling, as in ww.Rotary(64, scaling=ww.scaling.YaRN(factor=4.0, original_length=4096))": "yarn ntk dynamicntk"
    " linear linearscaling llama3 longrope proportional ropescaling positioninterpolation",
    "ww.Sinusoidal(dim)": "sinusoid sinusoidalpositionalencoding sinusoidalpositionalembedding"
    " scaledsinusoidalembedding sinusoidalpositionembedding sinusoidalencoding sinusoidalembedding positionalencoding"
    " sincos",
    "ww.Learned(dim, max_length)": "learnedpositionalembedding learnedpositionalencoding learnedpositionembedding"
    " positionalembedding positionembedding positionembeddings absolutepositionembedding absolute"
    " absolutepositionalembedding",
    "ww.T5(num_heads)": "t5bias t5relativepositionbias t5relativebias relativepositionbias relativebias",
    "ww.ALiBi(num_heads)": "alibibias alibipositionalbias attentionwithlinearbiases",
    "ww.Where(..., window=size)": "slidingwindow slidingwindowattention localattention",
    "ww.Where() without a scheme": "nope none nopositions",
    "ww.TokenEmbedding(num_embeddings, embedding_dim)": "embedding embeddings tokenembeddings wordembedding",
    "here(q, k, v) of here = where.at(positions)": "attention multiheadattention flashattention sdpa"
    " scaleddotproductattention",
    "ww.linear_cross_entropy(hidden, weight, targets)": "crossentropy fusedlinearcrossentropy linearcrossentropyloss"
    " ligerfusedlinearcrossentropyloss cutcrossentropy",
    "positions.mask() of ww.Positions": "mask causalmask paddingmask attentionmask",
    "where.cache() of a layer, or ww.caches.of(past_key_values, model) of transformers": "cache dynamiccache"
    " staticcache slidingwindowcache keyvaluecache keyvalues",
    "ww.read(path)": "load open loadmodel frompretrained readmodel",
    "whatwhere.surgery": "resize extend trim repair convert resizecheckpoint trimcheckpoint repaircheckpoint",
}
"""What to write instead of names that people try: in lower case, without underscores."""


def missing_name(name: str, names: Iterable[str]) -> AttributeError:
    """Return the error for a name that whatwhere does not have, with the one it has for that if it is known."""
    text, plain = f"module 'whatwhere' has no attribute {name!r}", name.lower().replace("_", "")
    written = [f"ww.{one}" for one in names if one.lower().replace("_", "") == plain]
    written += [instead for instead, tried in _ELSEWHERE.items() if plain in tried.split()]
    if not written:
        return AttributeError(text)
    # With a name, and no object that has others, Python adds no suggestion of its own: for RoPE that was CoPE.
    return AttributeError(f"{text}.\nWrite {written[0]}.", name=name, obj=None)


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package: names are loaded from where its stub imports them.

    Args:
        package, file: its `__name__` and `__file__`, beside which there is __init__.pyi.
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    home = {name: module for module, name in _IMPORT.findall(stub)}

    def load(name: str) -> Any:
        if name not in home:
            unknown = AttributeError(f"module {package!r} has no attribute {name!r}")
            raise missing_name(name, home) if package == "whatwhere" else unknown
        module = home[name]
        value = None if module == package else getattr(import_module(module), name, None)
        value = import_module(f"{module}.{name}") if value is None else value  # a module that is public
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(sys.modules[package].__all__), list(home)
