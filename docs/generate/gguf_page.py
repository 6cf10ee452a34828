"""docs/gguf.md: architectures of GGUF whose positions are read, and the others, from the table of the reader."""

from importlib.metadata import version

from gguf import MODEL_ARCH_NAMES

from whatwhere.models.checkpoint.gguf_architectures import ARCHITECTURES, NOT_READ, Architecture

_PAIRS = {"interleaved": "interleaved (NORM)", "half": "half (NEOX)", None: "not rotated"}
_HEAD = """# Architectures of GGUF

Tokens are read from any GGUF file. Positions are read where it is known what llama.cpp does with the keys of the
header: {read} of the {all} architectures that the package gguf {version} names. In a test each is written to a file
with that package and read again, and equals the reading of the same numbers in transformers' own keys:

```text
pytest tests/models/checkpoint/test_gguf_architectures.py
```

| architecture | as the type | pairs in the file | windows |
|---|---|---|---|
"""
_LIMITS = """
*Pairs*: llama.cpp rotates features 2i and 2i+1 (NORM), or i and i + rotary_dim/2 (NEOX). Where transformers has halves
and llama.cpp NORM, its converter permutes the rows of queries and keys; descriptions state the layout of the file.

What is known of the files, and what is not:

- Keys that affect positions and that the code of an architecture does not read are refused by name, as a window in
  `starcoder2` is. The tensors of such a file can be read all the same.
- Llama 3's scaling is stored as one factor for each pair; its parameters are recovered if those of the published models
  reproduce every factor (also the step of Llama 4 Scout), else refused. LongRoPE's two tensors are read in `phi3`.
- `granite` files whose `rope.scaling.finetuned` is false are refused: llama.cpp does not rotate then.
- `qwen` (the first) is read as llama.cpp computes it, which neither raises theta nor multiplies queries beyond the
  length of training, as the code of its authors does; the header does not say that they would.
- `gemma3` without a window in the header has none in any layer; `cohere2`, `gemma-embedding` and `gpt-oss` without it
  are refused, as by llama.cpp.
- `baichuan` is read with 32 layers, the one that rotates: with 40 llama.cpp takes ALiBi, with others nothing.
- `smallthinker` is read without a window or with one of 4,096, which llama.cpp takes whatever the header says;
  `exaone-moe` with three layers of four windowed, as its converter writes.
- `deepseek2` and `glm-dsa`: the header has YaRN's `mscale_all_dim` alone, and `mscale` is taken to be equal, as by
  llama.cpp.
- `deepseek2-ocr` rotates by theta 10,000 without scaling, whatever the header says: a header that says otherwise is
  refused. `llama-embed` is read where `attention.causal` is false, for llama.cpp masks later tokens without the key.
- `attention.causal` false in an architecture of decoders is read as `is_causal: false`. Beside a window it is refused:
  llama.cpp then shows all later tokens, and transformers those of the window.
- `gemma4`: which pairs of layers without a window rotate is read from the tensor `rope_freqs.weight`, which divides the
  other frequencies by 1e30; other factors, or none, are refused.
- `grok` is read with llama.cpp's scales where an older header has none. A header with `attention.temperature_length`,
  as of Grok-2, is refused: llama.cpp reads the key and computes nothing with it.
- `plamo3`: a window of w is the query and the w - 1 keys before it, as llama.cpp masks them.
- `step35`: layers with a window may have query heads of their own; layers without one rotate half of a head, and alone
  have the scaling of `rope_freqs.weight`, recovered as that of Llama 3.
- `falcon-h1` has its multipliers in its weights, so that descriptions have none.
- `exaone4` of 64 layers without a window in the header is refused: llama.cpp has one of its own there.
- `phi3` files have the window of the model, which llama.cpp itself leaves out.
- `rope.scaling.attn_factor` beside YaRN is read where it is 1, or YaRN's own magnitude, 0.1 ln factor + 1: the
  converter of OLMo 3 writes transformers' attention_factor there. The description has this magnitude, by which the
  model was trained; llama.cpp multiplies both, so that its own rows are longer by it. Other values are refused.
- YaRN in `gpt-oss`: llama.cpp rounds the bounds of its ramp, the published configuration does not (`truncate`). The
  header does not say; the description is that of llama.cpp.
- `block_count` includes layers that predict further tokens (`nextn_predict_layers`); descriptions do not.

## Not read

"""


def _row(name: str, architecture: Architecture) -> str:
    types = [f"`{architecture.type}`"]
    if architecture.windowed_type is not None:
        types.append(f"`{architecture.windowed_type}` with a window")
    windows = "chunks of 8,192, by layer" if architecture.type == "llama4_text" else architecture.windows or ""
    return f"| `{name}` | {', '.join(types)} | {_PAIRS[architecture.pairs]} | {windows} |\n"


def page() -> str:
    """Return the page.

    Returns:
        Markdown: a table of the architectures that are read, their limits, and the names of the others.
    """
    named = set(MODEL_ARCH_NAMES.values())
    text = _HEAD.format(read=len(ARCHITECTURES.keys() & named), all=len(named), version=version("gguf"))
    text += "".join(_row(name, architecture) for name, architecture in ARCHITECTURES.items()) + _LIMITS
    rest = named - ARCHITECTURES.keys()
    for reason, names in NOT_READ.items():
        text += f"- {', '.join(f'`{name}`' for name in names if name in rest)}: {reason}\n"
        rest -= set(names)
    listed = ", ".join(f"`{name}`" for name in sorted(rest))
    return text + (f"- not compared with a type of transformers yet ({len(rest)}): {listed}\n" if rest else "")
