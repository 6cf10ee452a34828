"""Models of transformers, tiny and at random, inspected as one file, as shards and as GGUF; and one that people use."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers import WhisperForConditionalGeneration
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

import whatwhere as ww
from whatwhere.analysis.added_positions import PositionTable
from whatwhere.analysis.inspection import SECTIONS, Inspection, inspect
from whatwhere.analysis.token_table import Sizes
from whatwhere.records import Missing, to_json
from whatwhere.report.inspection import headline, sections

from ..models.checkpoint.forms import LAYERS, VOCABULARY, WORDS, write_gguf
from ..models.tiny import config_of, model_of

TYPES = ["llama", "gpt2", "t5", "bloom", "gemma"]
FORMS = ["single", "shards", "gguf"]
HAS = {
    "llama": {"rotary"}, "gemma": {"rotary"}, "gpt2": {"positions", "variance"}, "t5": {"biases"}, "bloom": {"biases"},
}  # fmt: skip


@pytest.fixture(scope="module", params=TYPES)
def model(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    torch.manual_seed(0)
    return request.param, model_of(config_of(request.param))


@pytest.fixture(params=FORMS)
def inspection(request: pytest.FixtureRequest, model: tuple[str, nn.Module], tmp_path: Path) -> Inspection:
    model_type, made = model
    path = tmp_path
    if request.param == "gguf":
        path = tmp_path / "model.gguf"
        write_gguf(path, made, model_type)
    else:
        made.save_pretrained(tmp_path, max_shard_size="40KB" if request.param == "shards" else "5GB")
        vocabulary = {word: n for n, word in enumerate(WORDS)}
        Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[0])).save(str(tmp_path / "tokenizer.json"))
    inspection = inspect(path)
    json.dumps(to_json(inspection), allow_nan=False)
    assert [section.name for section in sections(inspection)] == list(SECTIONS)
    return inspection


def test_every_section_exists_or_states_why_not(inspection: Inspection, model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    absent = {name for name in SECTIONS if isinstance(getattr(inspection, name), Missing)}
    assert absent == {"tables", "positions", "variance", "rotary", "biases"} - HAS[model_type]
    assert all(len(getattr(inspection, name).missing) > 20 for name in absent)
    _sizes(inspection.sizes, made)
    table = made.get_input_embeddings().weight.detach().double().numpy()
    norms = np.sort(np.sqrt((table**2).sum(axis=1)))
    assert inspection.norms.percentiles["50"] == pytest.approx(np.median(norms), rel=1e-5)
    assert sum(inspection.norms.histogram.counts) == VOCABULARY
    beyond = inspection.diagnostics.beyond_vocabulary
    assert (beyond.count, beyond.ids.tolist()) == (2, [VOCABULARY - 2, VOCABULARY - 1])
    types = {group.name: group.rows for group in inspection.norms.by_type}
    assert types == {"word": VOCABULARY - 2, "no token": 2}


def _sizes(sizes: Sizes, made: nn.Module) -> None:
    table = made.get_input_embeddings().weight
    head = made.get_output_embeddings().weight
    assert (sizes.rows, sizes.dim, sizes.tokens) == (*table.shape, VOCABULARY - 2)
    assert sizes.tied is (head is table)
    parts = {part.part: part.parameters for part in sizes.parts}
    assert parts["token table"] == table.numel()
    assert ("output projection" in parts) is (head is not table)
    assert sum(parts.values()) == sizes.parameters
    assert sum(part.share for part in sizes.parts) == pytest.approx(1, abs=1e-4)
    # A GGUF of the tests may lack tensors that its naming has no place for.
    assert sizes.parameters <= sum(parameter.numel() for parameter in made.parameters())


def test_rotary_is_that_of_the_model(inspection: Inspection, model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    if "rotary" not in HAS[model_type]:
        pytest.skip("it has no rotary")
    (own,) = inspection.rotary.groups
    theirs = made.model.rotary_emb.inv_freq.double().numpy()
    assert own.layers == list(range(LAYERS))
    assert np.allclose(own.wavelengths, 2 * np.pi / theirs, rtol=1e-5)
    assert own.partial.sum() == int((64 * theirs < 2 * np.pi).sum())
    assert own.effect.cosine.tolist() == [1.0] * len(own.effect.distances)


def test_biases_are_those_of_the_model(inspection: Inspection, model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    if model_type == "bloom":
        (own,) = inspection.biases.groups
        mask = torch.ones(1, 2)
        slopes = build_alibi_tensor(mask, 4, torch.float64)[:, 0, 1].double().numpy()
        assert np.allclose(own.curves.slopes, slopes)
        assert own.curves.past.distance.tolist() == [int(np.log(100) / slope) + 1 for slope in slopes]
    elif model_type == "t5":
        decoder, encoder = inspection.biases.groups
        for own, part in ((decoder, made.decoder), (encoder, made.encoder)):
            attention = part.block[0].layer[0].SelfAttention
            table = attention.compute_bias(300, 300)[0, :, -1].detach().double().numpy()  # of the last query
            assert np.allclose(own.curves.curves, table[:, ::-1][:, own.curves.distances], atol=1e-5)
        assert decoder.curves.future is None
        ahead = made.encoder.block[0].layer[0].SelfAttention.compute_bias(300, 300)[0, :, 0].detach()
        assert encoder.curves.future.peak.tolist() == ahead.argmax(dim=1).tolist()
    else:
        assert isinstance(inspection.biases, Missing)


def test_positions_are_those_of_the_model(inspection: Inspection, model: tuple[str, nn.Module]) -> None:
    model_type, made = model
    if model_type != "gpt2":
        assert isinstance(inspection.positions, Missing)
        return
    own = inspection.positions
    table = made.transformer.wpe.weight.detach().double()
    assert np.allclose(own.norms, table.norm(dim=1), rtol=1e-5)
    units = table / table.norm(dim=1, keepdim=True)
    for distance in (1, 5):
        expected = (units[distance:] * units[:-distance]).sum(dim=1).mean().item()
        assert own.by_distance[distance] == pytest.approx(expected, abs=1e-5)
    # Both tables are initialized alike, so that positions explain as much of the variance as tokens.
    split = inspection.variance
    assert split.norm in ("h.0.ln_1.weight", "blk.0.attn_norm.weight")
    assert split.token + split.position + split.interaction == pytest.approx(1, abs=1e-4)
    assert split.token == pytest.approx(0.5, abs=0.05)


ENCODERS = {
    "whisper": {"max_source_positions": 50, "max_target_positions": 20},
    "pegasus": {"max_position_embeddings": 30},
    "bart": {"max_position_embeddings": 30},
    "led": {"max_encoder_position_embeddings": 60, "max_decoder_position_embeddings": 30, "attention_window": 4},
}


@pytest.mark.parametrize("model_type", ENCODERS)
def test_positions_of_an_encoder_are_a_part_of_their_own(model_type: str, tmp_path: Path) -> None:
    """Those that are not trained are stored, but are no parameters; and each part of a model has its own table."""
    config = config_of(model_type, **ENCODERS[model_type])
    made = WhisperForConditionalGeneration(config) if model_type == "whisper" else model_of(config)
    made.save_pretrained(tmp_path)
    tables = {name: x for name, x in made.named_parameters() if name.endswith("embed_positions.weight")}
    assert len(tables) == 2
    for part in ("decoder",) if model_type == "whisper" else ("decoder", "encoder"):
        checkpoint = ww.read(tmp_path, part=part)
        found = inspect(checkpoint, sections=("sizes", "positions"))
        assert isinstance(found.sizes, Sizes)
        assert found.sizes.parameters == sum(x.numel() for x in made.parameters() if x.requires_grad)
        other = {"decoder": "encoder", "encoder": "decoder"}[part]
        shown = {each.part: each for each in found.sizes.parts}
        for name, of in (("position table", part), (f"{other} positions", other)):
            ((stored, table),) = ((each, x) for each, x in tables.items() if f"{of}." in each)
            size = shown[name]
            assert (size.tensor, size.shape) == (stored, tuple(table.shape))
            assert size.parameters == (table.numel() if table.requires_grad else 0)
            if name == "position table":
                assert isinstance(found.positions, PositionTable)
                assert (found.positions.learned, found.positions.tensor) == (table.requires_grad, stored)
                own = ww.load_where(checkpoint).where.input
                assert isinstance(own, ww.Learned)
                assert torch.equal(own.weight, table)


def test_layers_of_different_rotations(tmp_path: Path) -> None:
    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
    }
    types = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    config = config_of("gemma3_text", rope_parameters=parameters, layer_types=types)
    model_of(config).save_pretrained(tmp_path)
    inspection = inspect(tmp_path, ["rotary"])
    near, far = inspection.rotary.groups
    assert (near.layers, far.layers) == ([0, 1, 2], [3])
    assert np.allclose(far.slowdown, 8)
    (between,) = inspection.rotary.between
    pairs = np.arange(8) / 8
    apart = 10_000.0**-pairs - 1_000_000.0**-pairs / 8
    expected = np.cos(np.array(between.distances)[:, None] * apart).mean(axis=1)
    assert np.allclose(between.cosine, expected, atol=1e-5)


# A model that people use


@pytest.fixture(scope="module")
def real(minilm: Path) -> Inspection:
    return inspect(minilm)


def test_the_headline_of_a_real_model(real: Inspection) -> None:
    said = headline(real).replace("\u00a0", " ")
    assert said.startswith("30,522 tokens × 384, 512 learned positions; token identity explains 8")
    assert said.endswith("1,331 unreachable tokens")


def test_facts_of_a_real_model(real: Inspection, minilm: Path) -> None:
    from safetensors.numpy import load_file

    tensors = load_file(minilm / "model.safetensors")
    table = tensors["embeddings.word_embeddings.weight"].astype(np.float64)
    positions = tensors["embeddings.position_embeddings.weight"].astype(np.float64)
    norms = np.sqrt((table**2).sum(axis=1))
    assert 0.84 <= round(real.variance.token, 2) <= 0.87
    special = next(group for group in real.norms.by_type if group.name == "special")
    words = json.loads((minilm / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    named = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    own = [n for word, n in words.items() if word.startswith("[unused") or word in named]
    assert (special.rows, special.median) == (len(own), pytest.approx(np.median(norms[own]), rel=1e-5))
    lost = {row.token for row in real.diagnostics.unreachable.examples}
    assert "[unused0]" in lost
    # What the shares were measured on, anew: the sum of both tables, normed, with the means taken away.
    g = np.random.default_rng(7)
    tokens, added = table[g.choice(len(table), 300, replace=False)], tensors["embeddings.token_type_embeddings.weight"]
    x = tokens[:, None] + positions + added[0]
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) * tensors["embeddings.LayerNorm.weight"]
    x -= x.mean((0, 1))
    token = (x.mean(1) ** 2).sum(-1).mean() / (x**2).sum(-1).mean()
    assert real.variance.token == pytest.approx(token, abs=0.02)
