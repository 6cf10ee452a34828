"""Each claim by measuring it: its verdict, and the quantities that a formula, a paper or counting determines."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from transformers import DeepseekV3Config, GPT2Config

from experiments.tutorials.all_claims import CLAIMS, claim, measure
from experiments.tutorials.claim import ID, SOURCES, Claim, Measured, MeasuredClaim, Verdict, verdict_of
from experiments.tutorials.tutorial_1_tokens import PUBLISHED
from whatwhere.errors import MissingExtra, SettingError

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
EXACT = [each for each in CLAIMS if isinstance(each, MeasuredClaim) and each.kind == "exact"]


def made_up(measured: Sequence[Measured], verdict: Verdict = "holds") -> MeasuredClaim:
    return MeasuredClaim(
        id="0.99", says="It is.", verdict=verdict, right="Indeed.", kind="exact", measure=lambda: measured
    )


@pytest.mark.parametrize("exact", EXACT, ids=lambda each: each.id)
def test_the_measurement_confirms_the_verdict(exact: MeasuredClaim) -> None:
    finding = measure(exact)
    assert finding.verdict == exact.verdict, finding.measured
    assert not [each for each in finding.measured if not each.is_expected]
    assert finding.confirmed


@pytest.mark.parametrize("each", CLAIMS, ids=lambda each: each.id)
def test_a_claim_is_complete(each: Claim) -> None:
    assert ID.fullmatch(each.id)
    assert each.verdict in get_args(Verdict)
    assert " ".join(each.quote.split()) == each.quote != ""
    for sentence in (each.says, each.right):
        assert re.fullmatch(r"\S.*[.?]", sentence), sentence
        assert len(sentence.split()) <= 60
    assert each.says != each.right


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the tutorials are not in this checkout")
@pytest.mark.parametrize("each", CLAIMS, ids=lambda each: each.id)
def test_a_claim_is_in_its_tutorial(each: Claim) -> None:
    """Word for word, but for line ends and indents."""
    texts = [" ".join(file.read_text(encoding="utf-8").split()) for file in sorted(SEEDS.glob("*.txt"))]
    assert len(texts) == len(SOURCES)
    text = texts[int(each.id[0])]
    assert len(each.quote) >= 20
    assert re.search(".*".join(map(re.escape, each.quote.split(" […] "))), text)
    assert SOURCES[each.source] in text


def test_published_sizes_are_those_of_transformers() -> None:
    gpt2, deepseek = GPT2Config(), DeepseekV3Config()
    assert PUBLISHED["GPT-2"] == (gpt2.vocab_size, gpt2.n_embd)
    assert PUBLISHED["DeepSeek-V3"] == (deepseek.vocab_size, deepseek.hidden_size)


def test_claims_are_found_by_id() -> None:
    assert len({each.anchor for each in CLAIMS}) == len({each.says for each in CLAIMS}) == len(CLAIMS)
    assert all(claim(each.id) is each for each in CLAIMS)
    with pytest.raises(SettingError, match=r"no claim '0\.241'.*0\.24"):
        claim("0.241")


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ([Measured("rows", 7, claimed=7)], "holds"),
        ([Measured("rows", 7, claimed=8)], "fails"),
        ([Measured("rows", 7, claimed=8), Measured("columns", 3, claimed=3)], "depends"),
        ([Measured("rows", 7)], "not measured"),
        ([], "not measured"),
        ([Measured("shape", "(8, 64)", claimed="(8, 4)")], "fails"),
        ([Measured("value", 0.6816, claimed=0.755, tolerance=0.07)], "fails"),
    ],
)
def test_measured_quantities_give_the_verdict(measured: Sequence[Measured], verdict: Verdict) -> None:
    assert verdict_of(measured) == verdict
    assert measure(made_up(measured, verdict)).confirmed


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ([Measured("factor", 1.3335, claimed=1.17, tolerance=0.005)], "holds"),
        ([Measured("factor", 1.3335, claimed=1.17, expected=1.4, within=0.01)], "fails"),
        ([Measured("sign", True, claimed=True, expected=False)], "holds"),
    ],
)
def test_a_wrong_claim_is_detected(measured: Sequence[Measured], verdict: Verdict) -> None:
    """A verdict that the measurement does not give, and a quantity that is not what it must be."""
    assert not measure(made_up(measured, verdict)).confirmed


def test_nan_agrees_with_nothing() -> None:
    assert not measure(made_up([Measured("value", float("nan"), claimed=1.0, tolerance=5.0)])).confirmed
    assert not Measured("value", float("nan"), expected=1.0, within=5.0).is_expected


def test_what_a_missing_package_prevents_is_not_measured() -> None:
    def lacking() -> Sequence[Measured]:
        raise MissingExtra("needs a package: pip install it")

    finding = measure(
        MeasuredClaim(id="0.99", says="It is.", verdict="holds", right="Indeed.", kind="exact", measure=lacking)
    )
    assert (finding.verdict, finding.confirmed) == ("not measured", False)
    assert finding.reason == "needs a package: pip install it"
