"""Models of transformers, tiny and at random, inspected as one file, as shards and as GGUF; and one that people use."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from whatwhere.inspection import SECTIONS, inspect

from ..interop.checkpoint.test_models import WORDS, write_gguf
from ..interop.tiny import LAYERS, VOCABULARY, config_of, model_of

TYPES = ["llama", "gpt2", "t5", "bloom", "gemma"]
FORMS = ["single", "shards", "gguf"]
HAS = {
    "llama": {"rotary"},
    "gemma": {"rotary"},
    "gpt2": {"positions", "shares"},
    "t5": {"biases"},
    "bloom": {"biases"},
}


@pytest.fixture(scope="module", params=TYPES)
def model(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    """Make a model."""
    torch.manual_seed(0)
    return request.param, model_of(config_of(request.param))


@pytest.fixture(params=FORMS)
def found(request: pytest.FixtureRequest, model: tuple[str, nn.Module], tmp_path: Path) -> dict[str, Any]:
    """Save the model in one of three forms, and inspect it."""
    model_type, made = model
    path = tmp_path
    if request.param == "gguf":
        path = tmp_path / "model.gguf"
        write_gguf(path, made, model_type)
    else:
        made.save_pretrained(tmp_path, max_shard_size="40KB" if request.param == "shards" else "5GB")
        vocabulary = {word: n for n, word in enumerate(WORDS)}
        Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[0])).save(str(tmp_path / "tokenizer.json"))
    data = inspect(path).data
    json.dumps(data, allow_nan=False)
    return dict(data["sections"])


def test_every_section_is_there_or_says_why(found: dict[str, Any], model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    assert tuple(found) == SECTIONS
    absent = {name for name, section in found.items() if "missing" in section}
    assert absent == {"positions", "shares", "rotary", "biases"} - HAS[model_type]
    assert all(len(found[name]["missing"]) > 20 for name in absent)
    _sizes(found["sizes"], made)
    table = made.get_input_embeddings().weight.detach().double().numpy()
    norms = np.sort(np.sqrt((table**2).sum(axis=1)))
    assert found["norms"]["percentiles"]["50"] == pytest.approx(np.median(norms), rel=1e-5)
    assert sum(found["norms"]["histogram"]["counts"]) == VOCABULARY
    assert found["unhealthy"]["beyond"] == {
        "count": 2, "first": VOCABULARY - 2, "median_norm": found["unhealthy"]["beyond"]["median_norm"]}  # fmt: skip
    kinds = {group["name"]: group["rows"] for group in found["norms"]["by_kind"]}
    assert kinds == {"word": VOCABULARY - 2, "no token": 2}


def _sizes(found: dict[str, Any], made: nn.Module) -> None:
    table = made.get_input_embeddings().weight
    head = made.get_output_embeddings().weight
    assert (found["rows"], found["dim"], found["tokens"]) == (*table.shape, VOCABULARY - 2)
    assert found["tied"] is (head is table)
    parts = {part["part"]: part["parameters"] for part in found["parts"]}
    assert parts["token table"] == table.numel()
    assert ("readout" in parts) is (head is not table)
    assert sum(parts.values()) == found["parameters"]
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1, abs=1e-4)
    # A GGUF of the tests may lack tensors that its naming has no place for.
    assert found["parameters"] <= sum(parameter.numel() for parameter in made.parameters())


def test_rotary_is_that_of_the_model(found: dict[str, Any], model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    if "rotary" not in HAS[model_type]:
        pytest.skip("it does not turn")
    (own,) = found["rotary"]["settings"]
    theirs = made.model.rotary_emb.inv_freq.double().numpy()
    assert own["layers"] == list(range(LAYERS))
    assert np.allclose(own["wavelength"], 2 * np.pi / theirs, rtol=1e-5)
    assert own["unfinished_trained"] == int((64 * theirs < 2 * np.pi).sum())
    assert own["effect"]["cosine"] == [1.0] * len(own["effect"]["distances"])


def test_biases_are_those_of_the_model(found: dict[str, Any], model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    if model_type == "bloom":
        (own,) = found["biases"]["settings"]
        mask = torch.ones(1, 2)
        slopes = build_alibi_tensor(mask, 4, torch.float64)[:, 0, 1].double().numpy()
        assert np.allclose(own["slopes"], slopes)
        assert [head["reach"] for head in own["past"]] == [int(np.log(100) / slope) + 1 for slope in slopes]
    elif model_type == "t5":
        decoder, encoder = found["biases"]["settings"]
        for own, part in ((decoder, made.decoder), (encoder, made.encoder)):
            attention = part.block[0].layer[0].SelfAttention
            table = attention.compute_bias(300, 300)[0, :, -1].detach().double().numpy()  # of the last query
            assert np.allclose(np.array(own["curves"]), table[:, ::-1][:, own["distances"]], atol=1e-5)
        assert "future" in encoder
        assert "future" not in decoder
        ahead = made.encoder.block[0].layer[0].SelfAttention.compute_bias(300, 300)[0, :, 0].detach()
        assert [head["greatest"] for head in encoder["future"]] == ahead.argmax(dim=1).tolist()
    else:
        assert "missing" in found["biases"]


def test_positions_are_those_of_the_model(found: dict[str, Any], model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    if model_type != "gpt2":
        assert "missing" in found["positions"]
        return
    own = found["positions"]
    table = made.transformer.wpe.weight.detach().double()
    assert np.allclose(own["norms"], table.norm(dim=1), rtol=1e-5)
    units = table / table.norm(dim=1, keepdim=True)
    for distance in (1, 5):
        expected = (units[distance:] * units[:-distance]).sum(dim=1).mean().item()
        assert own["by_distance"][distance] == pytest.approx(expected, abs=1e-5)
    # Tokens and positions are drawn alike, so that where they stand has as large a share as what they are.
    shares = found["shares"]
    assert shares["norm"] in ("h.0.ln_1.weight", "blk.0.attn_norm.weight")
    assert shares["token"] + shares["position"] + shares["interaction"] == pytest.approx(1, abs=1e-4)
    assert shares["token"] == pytest.approx(0.5, abs=0.05)


def test_layers_that_turn_unlike_each_other(tmp_path: Path) -> None:
    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
    }
    types = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    config = config_of("gemma3_text", rope_parameters=parameters, layer_types=types)
    model_of(config).save_pretrained(tmp_path)
    found = inspect(tmp_path, ["rotary"])["rotary"]
    near, far = found["settings"]
    assert (near["layers"], far["layers"]) == ([0, 1, 2], [3])
    assert np.allclose(far["slowed"], 8)
    (between,) = found["between"]
    pairs = np.arange(8) / 8
    apart = 10_000.0**-pairs - 1_000_000.0**-pairs / 8
    expected = np.cos(np.array(between["distances"])[:, None] * apart).mean(axis=1)
    assert np.allclose(between["cosine"], expected, atol=1e-5)


def test_opt_leaves_its_first_two_rows_out(tmp_path: Path) -> None:
    made = model_of(config_of("opt"))
    made.save_pretrained(tmp_path)
    found = inspect(tmp_path, ["positions"])["positions"]
    table = made.model.decoder.embed_positions.weight.detach()
    assert (found["offset"], found["positions"]) == (2, len(table) - 2)
    assert np.allclose(found["norms"], table[2:].norm(dim=1), rtol=1e-5)


# A model that people use


@pytest.fixture(scope="module")
def real(minilm: Path) -> dict[str, Any]:
    """Inspect MiniLM."""
    return dict(inspect(minilm).data)


def test_the_answer_for_a_real_model(real: dict[str, Any]) -> None:
    assert real["answer"].startswith("30,522 tokens x 384, learned positions 512; 8")
    assert real["answer"].endswith("1,331 rows no text can reach")


def test_what_is_known_of_a_real_model(real: dict[str, Any], minilm: Path) -> None:
    """Figures of the table itself, and what was measured on this model elsewhere."""
    from safetensors.numpy import load_file

    tensors = load_file(minilm / "model.safetensors")
    found = real["sections"]
    table = tensors["embeddings.word_embeddings.weight"].astype(np.float64)
    places = tensors["embeddings.position_embeddings.weight"].astype(np.float64)
    norms = np.sqrt((table**2).sum(axis=1))
    assert found["norms"]["percentiles"]["5"] == pytest.approx(np.percentile(norms, 5), rel=1e-5)
    assert found["positions"]["norms"][0] == pytest.approx(np.sqrt((places[0] ** 2).sum()), rel=1e-5)
    assert found["positions"]["outliers"][0]["position"] == 0
    assert 0.84 <= round(found["shares"]["token"], 2) <= 0.87
    variances = np.linalg.eigvalsh(np.cov(table.T, bias=True))
    assert found["spectrum"]["participation"] == pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=0.02)
    special = next(group for group in found["norms"]["by_kind"] if group["name"] == "special")
    words = json.loads((minilm / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    own = [
        n
        for word, n in words.items()
        if word.startswith("[unused") or word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ]
    assert (special["rows"], special["median"]) == (len(own), pytest.approx(np.median(norms[own]), rel=1e-5))
    lost = {row["token"] for row in found["unhealthy"]["unreachable"]["shown"]}
    assert "[unused0]" in lost
    # What the shares were measured on, anew: the sum of both tables, normed, with the means taken away.
    g = np.random.default_rng(7)
    x = (
        table[g.choice(len(table), 300, replace=False)][:, None]
        + places
        + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) * tensors["embeddings.LayerNorm.weight"]
    x -= x.mean((0, 1))
    token = (x.mean(1) ** 2).sum(-1).mean() / (x**2).sum(-1).mean()
    assert found["shares"]["token"] == pytest.approx(token, abs=0.02)
