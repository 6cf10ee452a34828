"""Long commands show how far they are and the time left; what each reports rises to all of it."""

from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from whatwhere import long_work
from whatwhere.long_work import WorkDone, reports_to
from whatwhere.report.terminal import Steps

from ..models.tiny import config_of, model_of
from ..running import whatwhere

WORDS = [f"w{n}" for n in range(35)]


class Shown:
    """The reports of a command, and the lines that a terminal shows of them."""

    def __init__(self) -> None:
        self.reports: list[WorkDone] = []
        self.lines: list[str] = []
        self._steps = Steps(self.lines.append)

    def __call__(self, work: WorkDone) -> None:
        self.reports.append(work)
        self._steps.show_work(work)

    def rises(self, step: str) -> bool:
        """Return whether the shares of a step rise from its beginning to all of it, and the time left is shown."""
        shares = [work.share for work in self.reports if work.step == step]
        rising = all(before <= after for before, after in pairwise(shares))
        timed = any(line.startswith(f"{step} (") and " left)" in line for line in self.lines)
        return len(shares) > 1 and shares[0] == 0 and shares[-1] == 1 and rising and timed


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    """Collect what a command reports, by a clock that goes on by a second whenever it is read."""
    ticks = count(0.0, 1.0)
    monkeypatch.setattr(long_work, "perf_counter", lambda: next(ticks))
    made = Shown()
    token = reports_to.set(made)
    yield made
    reports_to.reset(token)


def _tokenizer(path: Path, words: list[str]) -> None:
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token=words[0]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(path))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Save a tiny Llama, of which a row is zero."""
    torch.manual_seed(0)
    made = model_of(config_of("llama"))
    with torch.no_grad():
        made.get_input_embeddings().weight[5] = 0
    made.save_pretrained(tmp_path / "model")
    _tokenizer(tmp_path / "model" / "tokenizer.json", WORDS)
    return tmp_path / "model"


@pytest.fixture
def donor(tmp_path: Path) -> Path:
    """Save a model with another tokenizer, which shares half of its tokens."""
    words = [*WORDS[:20], *(f"w{n} w{n + 1}" for n in range(10))]
    (tmp_path / "donor").mkdir()
    _tokenizer(tmp_path / "donor" / "tokenizer.json", words)
    save_file({"model.embed_tokens.weight": torch.randn(len(words), 8)}, tmp_path / "donor" / "model.safetensors")
    return tmp_path / "donor"


WRITE: dict[str, tuple[str, ...]] = {
    "resize": ("--multiple-of", "64"),
    "extend": ("--to", "4096"),
    "trim": ("--corpus", "CORPUS"),
    "repair": (),
    "convert --layout": ("--layout", "interleaved"),
    "convert --dtype": ("--dtype", "bfloat16"),
    "convert --tokenizer": ("--tokenizer", "DONOR"),
    "convert --method omp": ("--tokenizer", "DONOR", "--method", "omp"),
    "convert --format": ("--format", "safetensors"),
}
STEPS = {
    "trim": ["encoding the corpus", "encoding the corpus again, by the trimmed tokenizer"],
    "convert --dtype": ["casting model.embed_tokens.weight"],
    "convert --tokenizer": ["splitting the text of new tokens"],
    "convert --method omp": ["decomposing tokens by matching pursuit"],
}


@pytest.mark.parametrize("name", WRITE)
def test_writing_a_checkpoint(name: str, model: Path, donor: Path, tmp_path: Path, shown: Shown) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("w7 w9\nw7\n" * 5000)
    given = {"CORPUS": corpus, "DONOR": donor}
    options = [given.get(word, word) for word in WRITE[name]]
    assert whatwhere(name.split()[0], model, tmp_path / "out", *options).status == 0
    for step in ("writing", *STEPS.get(name, ())):
        assert shown.rises(step), step


def test_writing_a_table(model: Path, tmp_path: Path, shown: Shown) -> None:
    assert whatwhere("convert", model, tmp_path / "out", "--format", "projector").status == 0
    assert shown.reports[-1].share == 1
    assert any(" rows, about " in line for line in shown.lines)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    np.save(tmp_path / "table.npy", rows)
    return tmp_path / "table.npy"


def _shares(shown: Shown) -> list[float]:
    return [work.share for work in shown.reports if "step " in work.amount or "neighbors" in work.amount]


def test_a_map_by_t_sne(table: Path, tmp_path: Path, shown: Shown) -> None:
    pytest.importorskip("openTSNE")
    assert whatwhere("map", table, "--method", "tsne", "--out", tmp_path / "map.svg").status == 0
    shares = _shares(shown)
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 0.95, "the rest is the comparison of neighbors"
    assert any("step 250 of 500, about " in line for line in shown.lines)
