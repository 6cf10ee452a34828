"""Settings: the issue's recipe, the author's, and every value that is refused, with the way out."""

import math
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.comparison.model import build_wheres, name_of
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.records import from_json, to_json

FEATURES, HEADS, ROWS = 32, 2, 9
pytestmark = pytest.mark.usefixtures("our_own_checks")


def own(dim: int, num_heads: int, max_length: int) -> ww.Where:
    return ww.Where(query_key=ww.Rotary(dim // num_heads), score=ww.ALiBi(num_heads))


def test_the_authors_recipe_is_the_tutorials_program() -> None:
    """An encoder on three arguments, 50 epochs of 8,000 expressions in batches of 32, Adam with its usual numbers."""
    settings = make_settings("expressions", None, "author")
    assert settings.steps * settings.batch == 50 * 8000
    assert (settings.batch, settings.direction, settings.trained) == (32, "encoder", (3,))
    # Adam is AdamW without decay.
    assert (settings.learning_rate, settings.betas, settings.weight_decay) == (1e-3, (0.9, 0.999), 0.0)
    assert settings.schedule == "constant"
    assert settings.init == 0.01
    assert (settings.layers, settings.dim, settings.heads, settings.feedforward) == (2, 64, 4, 256)
    assert all(length > 3 for length in settings.lengths)


def test_given_settings_override_the_recipe_and_the_task() -> None:
    given: dict[str, Any] = {"steps": 7, "direction": "decoder", "trained": range(1, 3), "batch": None}
    settings = make_settings("expressions", [5], "author", **given)
    assert (settings.lengths, settings.steps, settings.direction) == ((5,), 7, "decoder")
    assert (settings.trained, settings.batch) == ((1, 2), 32)


def test_settings_of_a_machine_with_a_gpu_are_read_on_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    written = to_json(make_settings("expressions", None, device="cuda"), None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert from_json(Settings, written, "results.json").device == "cuda"
    with pytest.raises(ww.errors.SettingError, match="pass device='auto'"):
        make_settings("expressions", None, device="cuda")


@pytest.mark.parametrize("cuda", [False, True])
def test_auto_chooses_the_available_device(cuda: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert make_settings("recall", None).resolved_device == ("cuda" if cuda else "cpu")
    assert make_settings("recall", None, device="cpu").resolved_device == "cpu"


SIZES = ("steps", "batch", "dim", "layers", "heads", "feedforward", "test_sequences")
WHOLE = "needs a whole number of at least [01]"
ABOVE = "needs a finite number above 0"
FROM_ZERO = "needs a finite number of at least 0"
BETAS = r"needs two numbers from 0 to below 1, as in betas=\(0\.9, 0\.98\)"


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        *(
            (name, value, ww.errors.ShapeError, WHOLE)
            for name in SIZES
            for value in (0, -1, 2.5, "3", True)
            if (name, value) != ("steps", 0)
        ),
        *((name, [4, 0], ww.errors.ShapeError, WHOLE) for name in ("lengths", "trained")),
        *((name, ["8"], ww.errors.ShapeError, WHOLE) for name in ("lengths", "trained")),
        ("lengths", 8, ww.errors.SettingError, r"needs several, as in lengths=\[8, 16\]"),
        ("lengths", "8,16", ww.errors.SettingError, r"needs several, as in lengths=\[8, 16\]"),
        ("trained", 3, ww.errors.SettingError, r"needs several, as in trained=\[1, 2, 3\]"),
        *(
            (name, value, ww.errors.SettingError, ABOVE)
            for name in ("learning_rate", "init")
            for value in (0, -1.0, math.inf, math.nan, "fast", True)
            if (name, value) != ("init", "fast")
        ),
        ("init", "fast", ww.errors.SettingError, "normal, glorot_uniform"),
        ("table", "fast", ww.errors.SettingError, "learned, frozen, onehot, ids, rank2"),
        *(("weight_decay", value, ww.errors.SettingError, FROM_ZERO) for value in (-0.1, math.inf, math.nan, "no")),
        *(("betas", value, ww.errors.SettingError, BETAS) for value in ((0.9,), (0.9, 1.0), (-0.1, 0.9), (0.9, "x"))),
        ("betas", 0.9, ww.errors.SettingError, "needs several, as in betas"),
        ("tied", "no", ww.errors.SettingError, "needs True or False"),
        ("schedule", "linear", ww.errors.SettingError, "cosine, constant"),
        ("direction", "sideways", ww.errors.SettingError, "decoder, encoder"),
        ("device", "tpu", ww.errors.SettingError, "auto, cpu, cuda"),
        ("heads", 5, ww.errors.ShapeError, "dim=64.*heads must divide dim"),
        ("positions", "random", ww.errors.SettingError, "plain, randomized, random_offset"),
        ("test_positions", "drawn", ww.errors.SettingError, "same, plain"),
        ("max_length", 50, ww.errors.SettingError, "plain positions are not sampled"),
        ("max_length", 0, ww.errors.ShapeError, "needs a whole number"),
    ],
)
def test_a_refused_value_is_named_with_the_way_out(name: str, value: Any, error: Any, words: str) -> None:
    given = {"lengths": [8], name: value}
    with pytest.raises(error, match=words) as caught:
        make_settings("expressions", given.pop("lengths"), **given)
    bad = value[-1] if isinstance(value, list) else value
    assert repr(bad) in str(caught.value)
    assert name.rstrip("s") in str(caught.value)


def test_an_unknown_setting_lists_those_that_are_known() -> None:
    with pytest.raises(ww.errors.SettingError, match="has no setting 'depth'") as caught:
        make_settings("recall", None, depth=3)
    known = set(Settings.__dataclass_fields__) - {"task", "lengths"}
    assert all(name in str(caught.value) for name in known)


@pytest.mark.parametrize(("task", "recipe"), [("recall", "author"), ("text", "author"), ("expressions", "secret")])
def test_a_recipe_belongs_to_its_task(task: str, recipe: str) -> None:
    with pytest.raises(ww.errors.SettingError, match=f"recipe='{recipe}'"):
        make_settings(task, None, recipe)


@pytest.mark.parametrize(
    "scheme", [None, 3, ww.Where(), ("mine",), ("mine", ww.Where()), (own, "mine"), ["mine", own], ("a", own, own)]
)
def test_what_is_no_scheme_is_refused(scheme: Any) -> None:
    with pytest.raises(ww.errors.SettingError, match="needs a name of the catalogue, or a pair") as caught:
        name_of(scheme)
    assert repr(scheme) in str(caught.value)


def doors(scheme: Any, layers: int) -> list[tuple[bool, bool, bool]]:
    wheres = build_wheres(scheme, FEATURES, HEADS, ROWS, layers)
    return [(w.input is not None, w.query_key is not None, w.score is not None) for w in wheres]


NONE, INPUT, HEAD, SCORE = (False,) * 3, (True, False, False), (False, True, False), (False, False, True)


@pytest.mark.parametrize(
    ("scheme", "layers", "expected"),
    [
        ("none", 2, [NONE, NONE]),
        ("rotary/none", 5, [HEAD, NONE, HEAD, NONE, HEAD]),
        ("learned/alibi/rotary", 3, [INPUT, SCORE, HEAD]),
        ("sinusoidal/none", 3, [INPUT, NONE, INPUT]),
        ("rotary+alibi/none", 2, [(False, True, True), NONE]),
        (("mine", own), 1, [(False, True, True)]),
        (("mine", lambda d, h, m: (ww.Where(), own(d, h, m))), 2, [NONE, (False, True, True)]),
    ],
)
def test_schemes_of_layers(scheme: Any, layers: int, expected: list[Any]) -> None:
    assert doors(scheme, layers) == expected


def test_a_custom_scheme_is_built_once_with_the_sizes_of_the_model() -> None:
    calls: list[tuple[int, int, int]] = []

    def build(dim: int, num_heads: int, max_length: int) -> ww.Where:
        calls.append((dim, num_heads, max_length))
        return ww.Where(input=ww.Learned(dim, max_length))

    wheres = build_wheres(("mine", build), FEATURES, HEADS, ROWS, 4)
    assert calls == [(FEATURES, HEADS, ROWS)]
    assert all(where is wheres[0] for where in wheres)


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("rotary/none/alibi", r"'rotary/none/alibi' has 3 parts, but the model only 2 layers: pass layers=3"),
        (("mine", lambda d, h, m: [ww.Where()] * 3), "'mine' has 3 parts"),
        ("none/learned", "'none/learned' has an input scheme in a later layer.*first part"),
        ("learned/learned", "input scheme in a later layer"),
        (("mine", lambda d, h, m: None), "'mine' built NoneType, but must build a Where, or a list of them"),
        (("mine", lambda d, h, m: []), "'mine' built list"),
        (("mine", lambda d, h, m: [ww.Where(), ww.ALiBi(h)]), "'mine' built list"),
    ],
)
def test_schemes_that_do_not_fit_the_layers(scheme: Any, words: str) -> None:
    with pytest.raises(ww.errors.SettingError, match=words):
        build_wheres(scheme, FEATURES, HEADS, ROWS, 2)
