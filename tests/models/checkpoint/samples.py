"""Small valid files of every format, which the fuzz tests damage."""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["the", "cat", "sat", ". . .", "é", "on", "mat"]
WEIGHT = np.arange(28, dtype=np.float32).reshape(7, 4) / 8 - 1.5
CONFIG = {
    "model_type": "gpt2", "vocab_size": 7, "n_embd": 4, "n_layer": 1, "n_head": 2, "n_positions": 5,
    "tie_word_embeddings": True, "architectures": ["GPT2LMHeadModel"],
}  # fmt: skip

FORMATS = {
    "safetensors": ["safetensors"],
    "folder": ["folder-index", "folder-shard", "folder-config", "folder-tokenizer", "folder-vocabulary",
               "folder-sentencepiece", "folder-quantized-config", "folder-adapter-config"],
    "gguf": ["gguf"],
    "word2vec": ["word2vec", "fasttext"],
    "word2vec-binary": ["word2vec-binary"],
    "glove": ["glove"],
    "npy": ["npy"],
    "npz": ["npz", "npz-pressed"],
    "projector": ["projector", "projector-labels"],
    "results": ["results"],
    "pickle": ["pickle"],
}  # fmt: skip
"""Names of samples by format; those of one are fuzzed together."""


@dataclass(frozen=True)
class Sample:
    """The files of one checkpoint, by name."""

    files: dict[str, bytes]
    damaged: str  # the one that is damaged
    opened: str = ""  # the one that is opened; empty for the folder

    def write(self, folder: Path, content: bytes | None = None) -> Path:
        """Write the files, one of them perhaps with another content, and give the path to open."""
        for name, kept in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(kept if content is None or name != self.damaged else content)
        return folder / self.opened


def single(name: str, content: bytes) -> Sample:
    return Sample({name: content}, name, name)


Stored = np.ndarray | tuple[str, tuple[int, ...], bytes]
"""Numbers that are stored as float32; or the type, shape and bytes of a tensor."""


def safetensors(tensors: Mapping[str, Stored], metadata: dict[str, str] | None = None) -> bytes:
    """Write the format by hand."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    data = bytearray()
    for name, one in tensors.items():
        dtype, shape, content = one if isinstance(one, tuple) else ("F32", one.shape, one.astype("<f4").tobytes())
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def write_folder(path: Path, tensors: Mapping[str, Stored] | None, **files: Any) -> Path:
    """Write weights and other files, of which `config__json` is config.json; what is not bytes is written as JSON."""
    path.mkdir(parents=True, exist_ok=True)
    weights = {} if tensors is None else {"model__safetensors": safetensors(tensors)}
    for name, content in {**weights, **files}.items():
        written = content if isinstance(content, bytes) else json.dumps(content).encode()
        (path / name.replace("__", ".")).write_bytes(written)
    return path


GGUF_TOKENS = "tokenizer.ggml.tokens"


def write_gguf(path: Path, arch: str, keys: Mapping[str, Any], tensors: Mapping[str, Any], split: int = 0) -> Path:
    """Write keys, named without their architecture, and arrays or bytes of a type, by the package of the format."""
    import gguf

    writer: Any = gguf.GGUFWriter(path, arch, split_max_tensors=split)
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string"}
    for name, value in keys.items():
        add = getattr(writer, f"add_{kinds.get(type(value), 'array')}")
        add(name if name.startswith("tokenizer.") else f"{arch}.{name}", value)
    for name, value in tensors.items():
        array, kind = value if isinstance(value, tuple) else (value, None)
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_file(path: Path, words: list[str] = WORDS, table: np.ndarray | None = None) -> bytes:
    """Write a model of a few tensors; the table has 32 columns."""
    import gguf

    table = np.linspace(-1, 1, 7 * 32, dtype=np.float32).reshape(7, 32) if table is None else table
    kind = gguf.GGMLQuantizationType.Q8_0
    sizes = {"embedding_length": 32, "block_count": 1, "attention.head_count": 2, "context_length": 5}
    tensors = {"token_embd.weight": (gguf.quants.quantize(table, kind), kind),
               "position_embd.weight": table[:5].astype(np.float16)}  # fmt: skip
    return write_gguf(path, "gpt2", {**sizes, "some.numbers": [1, 2, 3], GGUF_TOKENS: words}, tensors).read_bytes()


def sentencepiece(words: list[str]) -> bytes:
    """Write the pieces of a SentencePiece model, each a message of text, score and type."""
    pieces = [b"\x0a" + bytes([len(text)]) + text + struct.pack("<Bf", 0x15, -1.0) + b"\x18\x01" for text in
              (word.encode() for word in words)]  # fmt: skip
    return b"".join(b"\x0a" + bytes([len(piece)]) + piece for piece in pieces)


def tokenizer(words: list[str]) -> bytes:
    """Write a tokenizer.json of whole words."""
    vocabulary = {word: number for number, word in enumerate(words[:-1])}
    added = {"id": len(words) - 1, "content": words[-1], "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}  # fmt: skip
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": words[0]}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", **parts, "added_tokens": [added], "model": model}).encode()


def lines(words: list[str] | None = None, separator: str = " ") -> bytes:
    rows = (separator.join(f"{value:.4f}" for value in row) + "\n" for row in WEIGHT)
    begins = [""] * len(WEIGHT) if words is None else [word + separator for word in words]
    return "".join(begin + row for begin, row in zip(begins, rows, strict=True)).encode()


def binary() -> bytes:
    """Write vectors as word2vec's own program does."""
    words = (word.replace(" ", "_").encode() for word in WORDS)
    return b"7 4\n" + b"".join(word + b" " + row.tobytes() + b"\n" for word, row in zip(words, WEIGHT, strict=True))


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(pressed: bool) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if pressed else np.savez)(file, table=WEIGHT, ids=np.arange(7), one=np.float64(3))
    return file.getvalue()


def pickled() -> bytes:
    """Write a state dict as PyTorch does."""
    import torch

    file = io.BytesIO()
    table = torch.from_numpy(WEIGHT)
    torch.save({"state_dict": {"wte.weight": table, "half": table.bfloat16()}, "step": 3}, file)
    return file.getvalue()


def make(folder: Path) -> dict[str, Sample]:
    """Make a sample of every format; `folder` is for packages that write to a path only."""
    table: dict[str, Stored] = {"wte.weight": WEIGHT}
    small: dict[str, Stored] = {"wpe.weight": ("BF16", (5, 4), bytes(range(40))), "scale": ("F8_E4M3", (), b"\x38")}
    one = safetensors(table | small, {"format": "pt"})
    shards = {"a.safetensors": safetensors(table), "b.safetensors": safetensors(small)}
    index = {"metadata": {"total_size": 153}, "weight_map": {"wte.weight": "a.safetensors",
             "wpe.weight": "b.safetensors", "scale": "b.safetensors"}}  # fmt: skip
    beside = {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": tokenizer(WORDS)}
    sharded = {**shards, "model.safetensors.index.json": json.dumps(index).encode(), **beside}
    layer = safetensors({"input.tokens.weight": WEIGHT}, {"format": "whatwhere-model"})
    # The version before, without a checksum: damage then reaches what is behind it.
    results = {"format": "whatwhere-results", "version": 3, "task": {"tokens": WORDS},
               "runs": [{"scheme": "rotary", "seed": 0, "file": "models/rotary-0.safetensors"}]}  # fmt: skip
    run = {"models/rotary-0.safetensors": layer, "results.json": json.dumps(results).encode()}
    labels = "\n".join(["word\tid", *(f"{w}\t1" for w in WORDS)]).encode()
    pair = {"vectors.tsv": lines(separator="\t"), "metadata.tsv": labels}
    coded = {"model.safetensors": safetensors({
        "wte.weight": ("U32", (7, 3), bytes(range(84))), "wte.scales": ("F16", (7, 1), b"\x00\x3c" * 7),
        "wte.biases": ("F16", (7, 1), b"\x00\xbc" * 7), "lm_head.weight": ("F8_E4M3", (7, 32), bytes(224)),
        "lm_head.weight_scale_inv": ("F32", (1, 1), b"\0\0\x80\x3f"),
    })}  # fmt: skip
    coded["config.json"] = json.dumps(CONFIG | {"quantization": {"bits": 3, "group_size": 32}}).encode()
    adapter = {"adapter_model.safetensors": safetensors({
        "base_model.model.wte.base_layer.weight": WEIGHT,
        "base_model.model.wte.lora_embedding_A": WEIGHT.reshape(4, 7)[:2],
        "base_model.model.wte.lora_embedding_B": WEIGHT.reshape(14, 2)[:4],
    }), "adapter_config.json": json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}).encode()}  # fmt: skip
    plain, numbered = {"model.safetensors": one}, json.dumps({w: n for n, w in enumerate(WORDS)}).encode()
    return {
        "safetensors": single("model.safetensors", one),
        "folder-index": Sample(sharded, "model.safetensors.index.json"),
        "folder-shard": Sample(sharded, "b.safetensors"),
        "folder-config": Sample(sharded, "config.json"),
        "folder-tokenizer": Sample(sharded, "tokenizer.json"),
        "folder-vocabulary": Sample({**plain, "vocab.json": numbered}, "vocab.json"),
        "folder-sentencepiece": Sample({**plain, "tokenizer.model": sentencepiece(WORDS)}, "tokenizer.model"),
        "folder-quantized-config": Sample(coded, "config.json"),
        "folder-adapter-config": Sample(adapter, "adapter_config.json"),
        "gguf": single("model.gguf", gguf_file(folder / "sample.gguf")),
        "word2vec": single("words.txt", b"7 4\n" + lines(WORDS)),
        "word2vec-binary": single("words.bin", binary()),
        "glove": single("glove.txt", lines(WORDS)),
        "fasttext": single("words.vec", b"7 4\n" + lines(WORDS)),
        "npy": single("table.npy", saved(WEIGHT)),
        "npz": single("tables.npz", zipped(pressed=False)),
        "npz-pressed": single("tables.npz", zipped(pressed=True)),
        "projector": Sample(pair, "vectors.tsv"),
        "projector-labels": Sample(pair, "metadata.tsv"),
        "results": Sample(run, "results.json"),
        "pickle": single("model.pt", pickled()),
    }  # fmt: skip
