"""Another layout, type, tokenizer or format: the same scores, the error that is reported, the same numbers."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

import whatwhere as ww
from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.surgery import convert_dtype, convert_format, convert_layout, move_to_tokenizer
from whatwhere.surgery.convert import damage

from ..models.checkpoint import samples
from ..models.checkpoint.forms import write_gguf
from .conftest import (
    SHARDS,
    SINGLE,
    WORDS,
    Save,
    digests,
    json_of,
    loaded,
    logits,
    metadata,
    require_others_unchanged,
    save_tokenizer,
    tensor,
)

# Layout


def scores(folder: Path, prefix: str, description: Any, interleaved: bool, hidden: Tensor) -> Tensor:
    """Compute attention scores of a layer with its weights as they stand in a file, turned in one layout."""
    plan = next(plan for plan in description.query_key if plan is not None)
    rope = replace(plan, settings={**plan.settings, "interleaved": interleaved}).build()
    checkpoint = Checkpoint.open(folder)

    def heads(name: str, count: int) -> Tensor:
        result = hidden @ checkpoint.tensor(f"{prefix}.{name}_proj.weight").double().T
        if f"{prefix}.{name}_proj.bias" in checkpoint.tensors:
            result = result + checkpoint.tensor(f"{prefix}.{name}_proj.bias").double()
        result = result.unflatten(-1, (count, -1))
        if f"{prefix}.{name}_norm.weight" in checkpoint.tensors:  # over each head, after the projection
            weight = checkpoint.tensor(f"{prefix}.{name}_norm.weight").double()
            result = result / (result.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
        return result.transpose(1, 2)

    q, k = heads("q", description.num_heads), heads("k", description.key_heads)
    q, k = rope(q, k, torch.arange(hidden.shape[1]) * 7)
    return q @ k.repeat_interleave(description.num_heads // description.key_heads, dim=1).mT


CASES = [("llama", "model.layers.1.self_attn"), ("qwen2", "model.layers.0.self_attn"), ("gptj", "transformer.h.2.attn"),
         ("qwen3", "model.layers.3.self_attn"), ("phi", "model.layers.0.self_attn")]  # fmt: skip


@pytest.mark.parametrize(("model_type", "prefix"), CASES)
@pytest.mark.parametrize("size", [SINGLE, SHARDS])
def test_scores_are_those_of_the_other_layout(
    save: Save, tmp_path: Path, model_type: str, prefix: str, size: str
) -> None:
    """With grouped heads, biases, norms over heads, and heads of which a part turns; and back again."""
    folder, model = save(model_type, size)
    with torch.no_grad():  # biases and norms are drawn too, or a wrong one would not show
        for name, value in model.named_parameters():
            if "norm" in name or "bias" in name:
                value.normal_()
    model.save_pretrained(folder, max_shard_size=size)
    description = ww.from_huggingface(model.config)
    own = model_type == "gptj"
    other = "half" if own else "interleaved"
    report = convert_layout(folder, tmp_path / "out", other)  # type: ignore[arg-type]
    hidden = torch.randn(2, 9, 64, dtype=torch.float64)
    right = scores(folder, prefix, description, own, hidden)
    torch.testing.assert_close(scores(tmp_path / "out", prefix, description, not own, hidden), right)
    assert (scores(tmp_path / "out", prefix, description, own, hidden) - right).abs().max() > 0.1
    require_others_unchanged(folder, tmp_path / "out", report)
    assert not any("v_proj" in one.name or "o_proj" in one.name for one in report.changed)
    assert all(metadata(one)["whatwhere.rotary_layout"] == other for one in (tmp_path / "out").glob("*.safetensors"))
    said = ww.read(tmp_path / "out").description.query_key[0]
    assert said is not None
    assert said.settings["interleaved"] is (other == "interleaved")  # so that what reads it turns the right pairs
    with pytest.raises(CheckpointError, match=f"has the {other} layout already: its header says so"):
        convert_layout(tmp_path / "out", tmp_path / "again", other)  # type: ignore[arg-type]
    convert_layout(tmp_path / "out", tmp_path / "back", "interleaved" if own else "half")
    assert digests(tmp_path / "back") == digests(folder)
    assert all(metadata(one) == {"format": "pt"} for one in (tmp_path / "back").glob("*.safetensors"))


def test_layers_without_rotation_are_unchanged(save: Save, tmp_path: Path) -> None:
    folder, _ = save("smollm3", no_rope_layers=[1, 0, 1, 1])
    report = convert_layout(folder, tmp_path / "out", "interleaved")
    assert sorted({one.name.split(".")[2] for one in report.changed}) == ["0", "2", "3"]
    assert len(report.changed) == 6


# Type


@pytest.mark.parametrize(
    ("model_type", "dtype"),
    [("llama", "bfloat16"), ("gpt2", "float16"), ("t5", "bfloat16"), ("llama", "float8_e4m3fn")],
)
def test_a_cast_equals_that_of_torch_and_its_error_is_reported(
    save: Save, tmp_path: Path, model_type: str, dtype: str
) -> None:
    folder, model = save(model_type)
    report = convert_dtype(folder, tmp_path / "out", dtype)
    before, after = Checkpoint.open(folder), Checkpoint.open(tmp_path / "out")
    error = size = 0.0
    for name, entry in before.tensors.items():
        old, new = before.tensor(name), after.tensor(name)
        kept = dtype.startswith("float8") and len(entry.shape) < 2
        right = old if kept else old.to(getattr(torch, dtype))
        assert torch.equal(new.view(torch.uint8), right.view(torch.uint8))
        error += 0 if kept else float((right.double() - old.double()).square().sum())
        size += 0 if kept else float(old.double().square().sum())
    assert report.measured.relative_error == pytest.approx((error / size) ** 0.5)
    table = report.measured.token_table
    name = before.token_table or ""
    x, y = (one.array(name).astype(np.float64) for one in (before, after))
    cosines = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    cosines = np.where((x == 0).all(1), 1, cosines) if model_type != "t5" else cosines
    finite = np.isfinite(cosines)
    assert table.worst_row_cosine == pytest.approx(cosines[finite].min(), abs=1e-7)
    assert table.median_row_cosine == pytest.approx(np.median(cosines[finite]), abs=1e-7)
    assert table.relative_error == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x))
    assert 0.5 < table.nearest_kept <= 1
    assert json_of(tmp_path / "out")["dtype"] == dtype
    if dtype == "bfloat16":
        made = loaded(tmp_path / "out", model)
        assert made.get_input_embeddings().weight.dtype == torch.bfloat16


def test_rows_that_are_not_finite_have_no_part_in_the_damage() -> None:
    table = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    assert damage(table, table + 0).nearest_kept == 1
    assert damage(table, np.round(table)).nearest_kept < 0.9
    broken = table.copy()
    broken[3] = np.nan
    assert damage(broken, broken).worst_row_cosine == 1
    assert damage(np.full((2, 2), np.nan, np.float32), table[:2, :2]) is None


def test_what_would_be_infinite_is_refused(save: Save, tmp_path: Path) -> None:
    folder, model = save("llama")
    with torch.no_grad():
        model.lm_head.weight[3, 3] = 70_000
        model.lm_head.weight[3, 4] = float("inf")  # was so before, and is nobody's fault
    model.save_pretrained(folder)
    for dtype in ("float16", "float8_e4m3fn"):
        with pytest.raises(CheckpointError, match=rf"'lm_head.weight' holds 70000, beyond the range of {dtype}"):
            convert_dtype(folder, tmp_path / "out", dtype)
    assert not (tmp_path / "out").exists()
    convert_dtype(folder, tmp_path / "out", "bfloat16")


# Tokenizer


def bytes_tokenizer(words: list[str]) -> Tokenizer:
    """Make a tokenizer of GPT-2's kind whose tokens are these, built letter by letter."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = []
    known = list(alphabet)
    for word in words:
        for a, b in pairwise(range(len(word) + 1)):
            if a and word[:b] not in known:
                merges.append((word[:a], word[a:b]))
                known.append(word[:b])
    made = Tokenizer(models.BPE({token: n for n, token in enumerate(known)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "t5"])
def test_a_table_moves_to_another_tokenizer(save: Save, tmp_path: Path, model_type: str) -> None:
    """Shared tokens to the bit; a new word is the mean of what it was; what nobody knows is the mean."""
    folder, model = save(model_type, pad_token_id=1, eos_token_id=2, decoder_start_token_id=0)
    words = ["w7", "w3 w5 w5", "[UNK]", "w1", "unheard", "w0"]
    other = tmp_path / "tokenizer.json"
    Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")).save(str(other))
    report = move_to_tokenizer(folder, tmp_path / "out", other)
    old = model.get_input_embeddings().weight.detach()
    made = loaded(tmp_path / "out", model)
    table = made.get_input_embeddings().weight.detach()
    assert table.shape == (6, 64)
    assert torch.equal(table[[0, 3, 5]], old[[7, 1, 0]])
    assert torch.allclose(table[1], (old[3] + 2 * old[5]) / 3, atol=1e-6)
    assert torch.allclose(table[4], old[:35].mean(0), atol=1e-6)
    assert (report.measured.copied, report.measured.composed, report.measured.mean_rows) == (3, 1, 2)
    assert json_of(tmp_path / "out", "tokenizer.json") == json_of(tmp_path, "tokenizer.json")
    assert made.config.vocab_size == 6
    said = json_of(tmp_path / "out")
    assert (said["pad_token_id"], said["eos_token_id"], said["decoder_start_token_id"]) == (3, None, 5)
    before, after = logits(model, torch.tensor([[7, 1]])), logits(made, torch.tensor([[0, 3]]))
    torch.testing.assert_close(after[..., [0, 3, 5]], before[..., [7, 1, 0]])  # another width, another sum


def test_words_are_compared_whichever_way_they_are_marked(save: Save, tmp_path: Path) -> None:
    folder, model = save("llama", vocab_size=266)
    mine = bytes_tokenizer(["Ġthe", "Ġcat", "ing"])
    mine.save(str(folder / "tokenizer.json"))
    vocabulary = {"[UNK]": 0, "the": 1, "cat": 2, "##ing": 3, "##the": 4}
    theirs = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    theirs.decoder = decoders.WordPiece()
    theirs.save(str(tmp_path / "tokenizer.json"))
    report = move_to_tokenizer(folder, tmp_path / "out", tmp_path / "tokenizer.json")
    table, old = tensor(tmp_path / "out", "model.embed_tokens.weight"), model.get_input_embeddings().weight.detach()
    for n, token in ((1, "Ġthe"), (2, "Ġcat"), (3, "ing")):
        assert torch.equal(table[n], old[mine.token_to_id(token)])
    pieces = mine.encode("the").ids
    assert len(pieces) > 1
    assert torch.allclose(table[4], old[pieces].mean(0), atol=1e-6)
    assert report.measured.copied == 3


def test_matching_pursuit_writes_new_tokens_as_the_other_model_does(
    save: Save, tmp_path: Path, our_own_checks: None
) -> None:
    """A donor whose new row is 2 a - b has that in the new table too, of rows that are quite others."""
    donor = save("gpt2")[0].rename(tmp_path / "donor")
    folder, _ = save("llama")
    other = Checkpoint.open(donor)
    rows = torch.linalg.qr(torch.randn(64, 64))[0][:37]
    rows[36] = 2 * rows[4] - rows[9]
    state = load_file(donor / "model.safetensors")
    save_file({**state, other.token_table or "": rows.contiguous()}, donor / "model.safetensors", {"format": "pt"})
    save_tokenizer(donor, [*WORDS, "one", "new"])
    move_to_tokenizer(folder, tmp_path / "out", donor, method="omp")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        old, made = tensor(folder, name), tensor(tmp_path / "out", name)
        assert torch.equal(made[:35], old[:35])
        assert torch.allclose(made[36], 2 * old[4] - old[9], atol=1e-5)


# Format


@pytest.mark.parametrize("model_type", ["llama", "t5"])
def test_gguf_becomes_safetensors(save: Save, tmp_path: Path, model_type: str) -> None:
    _, model = save(model_type)
    write_gguf(tmp_path / "model.gguf", model, model_type)
    convert_format(tmp_path / "model.gguf", tmp_path / "out.safetensors", "safetensors")
    before, after = Checkpoint.open(tmp_path / "model.gguf"), Checkpoint.open(tmp_path / "out.safetensors")
    assert before.tensors.keys() == after.tensors.keys()
    for name in before.tensors:
        assert np.array_equal(before.array(name), after.array(name))
    assert after.token_table == "token_embd.weight"
    report = convert_format(tmp_path / "model.gguf", tmp_path / "half.safetensors", "safetensors", dtype="bfloat16")
    assert Checkpoint.open(tmp_path / "half.safetensors").entry("token_embd.weight").dtype == "bfloat16"
    assert report.measured.token_table.worst_row_cosine > 0.9999


def test_a_file_names_what_safetensors_cannot_hold(tmp_path: Path) -> None:
    """Neither words nor configuration; and a file becomes a file, whose name says of what format it is."""
    (tmp_path / "words.txt").write_text("king 1 2\nqueen 3 4\n")
    samples.write_gguf(
        tmp_path / "model.gguf",
        "gpt2",
        {samples.GGUF_TOKENS: ["a", "b"]},
        {"token_embd.weight": np.ones((2, 32), np.float32)},
    )
    for name, lost in (("words.txt", "2 tokens"), ("model.gguf", "2 tokens and the configuration")):
        report = convert_format(tmp_path / name, tmp_path / f"{name}.safetensors", "safetensors")
        assert report.notes == (f"not written, as safetensors hold tensors alone: {lost}",)
        assert Checkpoint.open(tmp_path / f"{name}.safetensors").words is None
        with pytest.raises(CheckpointError, match=r"one file, .* does not end in \.safetensors"):
            convert_format(tmp_path / name, tmp_path / "out", "safetensors")


def test_quantized_tables_become_float32(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    stored = gguf.quants.quantize(table, kind)
    samples.write_gguf(tmp_path / "model.gguf", "gpt2", {}, {"token_embd.weight": (stored, kind)})
    report = convert_format(tmp_path / "model.gguf", tmp_path / "out.safetensors", "safetensors")
    right = gguf.quants.dequantize(stored, kind)
    assert np.array_equal(Checkpoint.open(tmp_path / "out.safetensors").array("token_embd.weight"), right)
    assert (report.notes[-1], report.kept) == ("Q8_0 became float32", 0)


def test_a_pickle_becomes_a_folder_that_transformers_loads(save: Save, tmp_path: Path) -> None:
    folder, model = save("gpt2")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="allow_pickle"):
        convert_format(folder, tmp_path / "out", "safetensors")
    convert_format(folder, tmp_path / "out", "safetensors", allow_pickle=True)
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()
    ids = torch.tensor([[3, 4]])
    assert torch.equal(logits(loaded(tmp_path / "out", model), ids), logits(model, ids))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_table_is_read_back_to_the_bit(save: Save, tmp_path: Path, dtype: torch.dtype) -> None:
    folder, model = save("llama")
    model.to(dtype).save_pretrained(folder)
    words = ["[UNK]", "a", " ", "b c", "東京", "\n", "d\te", "'", *WORDS[8:]]
    save_tokenizer(folder, words)
    report = convert_format(folder, tmp_path / "out", "projector")
    result = Checkpoint.open(tmp_path / "out")
    right = model.get_input_embeddings().weight.detach().float().numpy()[: len(WORDS)]
    assert np.array_equal(result.array(result.token_table or ""), right)
    assert report.changed[0].after == f"{len(right)} x 64 float32"
    escaped = {2: "\\x20", 5: "\\n", 6: "d\\te"}
    assert result.words == [escaped.get(n, word) for n, word in enumerate(words)]
