"""The catalogue: rows that tell the truth, and schemes by name."""

import inspect
import pickle
import re
from copy import deepcopy
from datetime import date

import pytest
import torch

import whatwhere as ww
from tests.laws.cases import variants
from tests.samples import draw
from whatwhere.where.base import InputEncoding, QueryKeyMap
from whatwhere.where.score_bias import ScoreBias

DOORS = {"input": InputEncoding, "query_key": QueryKeyMap, "score": ScoreBias}
ROWS = list(ww.catalogue.values())


def in_use(where):
    return {door: getattr(where, door) for door in DOORS if getattr(where, door) is not None}


def made_by_its_repr(code):
    """Evaluate a repr with the names of whatwhere, its scaling and its temperature."""
    names = {name: getattr(ww, name) for name in ww.__all__}
    return eval(code, {"torch": torch, **vars(ww.scaling), **vars(ww.temperature), **names})


def settings_of(module):
    """The public attributes of a scheme, of its scaling, and of the map inside, and the shapes of its parameters."""
    settings = {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"}
    inner = {name: settings_of(child) for name, child in module.named_children()}
    return type(module), settings, {name: x.shape for name, x in module.named_parameters()}, inner


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_scheme_is_copied_pickled_and_made_again_by_its_repr(row):
    for options in variants(row):
        where = ww.scheme(row.name, dim=48, num_heads=2, max_length=32, **options)
        assert settings_of(made_by_its_repr(repr(where))) == settings_of(where)
        for other in (deepcopy(where), pickle.loads(pickle.dumps(where))):
            assert settings_of(other) == settings_of(where)
            for copied, own in zip(other.parameters(), where.parameters(), strict=True):
                assert torch.equal(copied, own)
                assert copied is not own


@pytest.mark.parametrize("row", [row for row in ROWS if row.learned], ids=lambda row: row.name)
def test_what_is_learned_has_the_device_and_dtype_that_are_asked_for(row):
    scheme = getattr(row.build(48, 2, 32), row.door)
    made = made_by_its_repr(f"{repr(scheme)[:-1]}, device='meta', dtype=torch.float64)")
    assert {(x.device.type, x.dtype) for x in made.parameters(recurse=False)} == {("meta", torch.float64)}


@pytest.mark.parametrize("row", [row for row in ROWS if row.name != "fope"], ids=lambda row: row.name)
def test_grouped_queries_have_what_repeated_keys_have(row):
    """But those of FoPE, whose keys have the set of the first of their queries."""
    where, (q, k, v), x = row.build(32, 4, 32), draw(3, 1, 4, 9, 8), draw(1, 9, 32)
    for parameter in where.parameters():
        torch.nn.init.normal_(parameter)
    here, results = where.at(9), []
    for keys, values in ((k[:, :2], v[:, :2]), (x[:, :2].repeat_interleave(2, 1) for x in (k, v))):
        mapped = here.query_key(q, keys, increments=here.increments(x))
        results.append(here.attention(*mapped, values, gates=here.gates(x)))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "scheme",
    [
        ww.Learned(200, 300),
        ww.Learned(200, 300, std=0.5),
        ww.T5(512, num_buckets=64, std=0.3),
        ww.Shaw(256, 2, 64, 64, std=0.3),
        ww.DeBERTa(64, 4, 64, std=0.3),
        ww.TransformerXL(64, 256, 4, std=0.3),
    ],
    ids=repr,
)
def test_weights_are_initialized_with_their_std(scheme):
    torch.manual_seed(0)
    scheme.reset_parameters()
    for parameter in scheme.parameters():  # 16,384 values at least: one standard error of the deviation is 0.6 %
        assert abs(float(parameter.detach().std()) / scheme.std - 1) < 0.03


YARN = ww.scaling.YaRN(factor=4.0, original_length=100, mscale=0.707, mscale_all_dim=1.0)
LONGROPE = ww.scaling.LongRoPE([1.0, 1.5], [2.0, 1 / 3], original_length=100, factor=8.0)


@pytest.mark.parametrize(
    "where",
    [
        ww.Where(),
        ww.Where(
            ww.Learned(8, 16, offset=2),
            ww.SSMax(4, 2, ww.Rotary(4, scaling=LONGROPE)),
            ww.ALiBi(2, (0.1, 1 / 3)),
            scale=1 / 3,
        ),
        ww.Where(ww.SSMax(24, 3, ww.QueryTemperature(24, ww.temperature.LogN(7), ww.PoPE(24, 3)))),
        ww.Where(ww.Sinusoidal(8, layout="half", offset=2), ww.Rotary(24, rotary_dim=8, scaling=YARN)),
        ww.Where(ww.AxialRotary(8, sections=(3, 1)), ww.Shaw(8, 2, 3, 0)),
        ww.Where(ww.MultimodalRotary(12, (2, 2, 2), layout="interleaved", scaling=ww.scaling.Proportional(1 / 3))),
        ww.Where(ww.CoPE(24, 2, 8)),
        ww.Where(ww.T5(2, scale=None), scale=0.1, window=512),
        ww.Where(chunk=64, sink=ww.Sink(2)),
        ww.Where(ww.ALiBi(2), window=ww.Window(8, first=4, by="coordinates")),
    ],
    ids=repr,
)
def test_a_repr_of_a_composition_is_code_too(where):
    assert settings_of(made_by_its_repr(repr(where))) == settings_of(where)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_names_its_source(row):
    assert row.url.startswith("https://")
    assert row.paper
    assert row.formula
    assert row.used_by
    assert 2015 <= row.year <= date.today().year


def test_sources_are_bibtex_under_keys_of_their_own():
    entries = dict.fromkeys(row.bibtex for row in ROWS)
    keys = [re.match(r"@misc\{([a-z0-9-]+),", entry)[1] for entry in entries]
    assert len(keys) == len(set(keys)) == len({row.paper for row in ROWS})
    assert all(entry.count("{") == entry.count("}") and entry.isascii() for entry in entries)


def test_sources_name_all_authors_where_they_are_known():
    """Of Llama 3 there are hundreds; of CARoPE they are not known for certain."""
    authors = {row.name: re.search("author = {(.*)},", row.bibtex)[1] for row in ROWS}
    assert {name for name, names in authors.items() if "and others" in names} == {"rotary-llama3", "carope"}
    assert authors["alibi"] == "Ofir Press and Noah A. Smith and Mike Lewis"
    assert authors["rotary-ntk"] == "{bloc97}"  # whose rule YaRN's paper describes
    for row in ROWS:
        first, et_al, _ = row.paper.split(",")[0].partition(" et al.")
        names = authors[row.name].split(" and ")
        if et_al:
            assert len(names) > 1
            assert len(set(names)) == len(names)
            assert names[0].endswith(first)


def test_names_are_keys_lengths_are_words_and_nothing_can_be_changed():
    assert all(name == row.name for name, row in ww.catalogue.items())
    assert {row.length for row in ROWS} == {"any", "max_length", "33,994"}
    with pytest.raises(TypeError):
        ww.catalogue["mine"] = ROWS[0]


def test_every_final_scheme_of_the_package_has_a_row():
    built = {type(scheme) for row in ROWS for scheme in in_use(row.build(16, 2, 8)).values()}
    public = {
        value
        for name in ww.__all__
        if name != "compare" and name != "similarity"  # not schemes, and costly to load
        for value in [getattr(ww, name)]
        if inspect.isclass(value) and issubclass(value, tuple(DOORS.values())) and not inspect.isabstract(value)
    }
    assert public == built


@pytest.mark.parametrize("name", ["rotary+alibi", " rotary + alibi ", "alibi+rotary"])
def test_a_mixture_has_at_most_one_scheme_per_door(name):
    where = ww.scheme(name, dim=16, num_heads=2, max_length=5)
    assert {door: type(scheme) for door, scheme in in_use(where).items()} == {"query_key": ww.Rotary, "score": ww.ALiBi}


def test_a_mixture_of_all_doors_and_with_none():
    assert list(in_use(ww.scheme("learned+rotary+alibi", dim=16, num_heads=2, max_length=5))) == list(DOORS)
    assert list(in_use(ww.scheme("none+rotary", dim=16, num_heads=2, max_length=5))) == ["query_key"]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("rotary@theta=500000", lambda where: where.query_key.theta),
        ("rotary-linear@factor=2", lambda where: where.query_key.scaling.factor),
        ("rotary-longrope@factor=2", lambda where: where.query_key.scaling.factor),
        ("rotary-yarn@beta_fast=16,theta=5000", lambda where: where.query_key.scaling.beta_fast),
        ("sinusoidal@theta=5000", lambda where: where.input.theta),
        ("learned@std=1", lambda where: where.input.std),
    ],
)
def test_a_whole_number_in_a_name_becomes_what_the_option_is_declared_as(name, read):
    assert type(read(ww.scheme(name, dim=16, num_heads=2, max_length=32))) is float


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("none@512", "Where(window=Window(512))"),
        ("alibi@chunk=8", "Where(score=ALiBi(num_heads=4), window=Window(8, chunked=True))"),
        ("none@sink", "Where(sink=Sink(num_heads=4))"),
    ],
)
def test_a_name_has_the_options_of_its_layer(name: str, code: str) -> None:
    assert repr(ww.scheme(name, 64, 4, 128)) == code
    assert repr(ww.scheme(name.partition("@")[0], 64, 4, 128, **layer_options(name))) == code


def layer_options(name: str) -> dict[str, object]:
    return {"512": {"window": 512}, "chunk=8": {"chunk": 8}, "sink": {"sink": True}}[name.partition("@")[2]]


@pytest.mark.parametrize("factor", ["ssmax", "temperature"])
def test_a_factor_of_queries_composes_with_a_rotation(factor: str) -> None:
    """In any order; what it computes is the rotation, then the factor."""
    first, second = (
        ww.scheme(name, 64, 4, 128) for name in (f"rotary@theta=500+{factor}", f"{factor}+rotary@theta=500")
    )
    assert repr(first) == repr(second)
    assert first.query_key.then.theta == 500
    alone, rotary = ww.scheme(factor, 64, 4, 128).query_key, ww.Rotary(16, theta=500.0)
    q, k = torch.randn(2, 1, 4, 9, 16)
    mapped, rotated = first.query_key(q, k, ww.positions(9)), rotary(q, k, ww.positions(9))
    torch.testing.assert_close(mapped[0], alone(rotated[0], k, ww.positions(9))[0])
    torch.testing.assert_close(mapped[1], rotated[1])
