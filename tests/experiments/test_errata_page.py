"""The page of claims: every id has its anchor, and every number is a measured one."""

import re

from experiments.errata_page import errata_page
from experiments.tutorials.all_claims import CLAIMS, Finding
from experiments.tutorials.claim import Measured
from experiments.tutorials.trained import Judgment, Measurement, SchemeVerdict
from whatwhere.comparison.results import Spread


def finding(*measured: Measured, reason: str = "") -> Finding:
    return Finding("0.24", "fails", measured, 0.1, True, reason)


def section(page: str, id: str) -> str:
    """Return the section of a claim."""
    return page.split(f'<a id="claim-{id}"></a>')[1].split("<a id=")[0]


def test_every_claim_has_one_anchor() -> None:
    page = errata_page([], {})
    assert sorted(re.findall(r'<a id="([^"]+)"></a>', page)) == sorted(each.anchor for each in CLAIMS)


def test_what_is_measured_stands_beside_what_is_claimed() -> None:
    measured = (
        Measured("a | b", 1.33352, claimed=1.17, tolerance=0.005),
        Measured("rows", 128_256, claimed=128_000),
        Measured("it is", True, claimed=False),
        Measured("shape", "(8, 64)", claimed="(8, 4)"),
        Measured("not claimed", 7),
    )
    text = section(errata_page([finding(*measured)], {}), "0-24")
    assert "| a \\| b | 1.3335 | 1.17 |" in text
    assert "| rows | 128,256 | 128,000 |" in text
    assert "| it is | yes | no |" in text
    assert "| shape | (8, 64) | (8, 4) |" in text
    assert "not claimed" not in text
    assert "<i>a | b: 1.3335, claimed 1.17</i></summary>" in text
    assert "The tutorial writes: `` " in text


def test_what_was_not_measured_says_why() -> None:
    assert "needs a package" in section(errata_page([finding(reason="needs a package")], {}), "0-24")
    trained = section(errata_page([], {}), "0-13")
    assert "whatwhere compare" in trained
    assert "above 0.3: cosine of Max and Min of what training wrote" in trained
    undecided = section(errata_page([], {}), "0-36")
    assert "0.36 <b>Not decided</b>: " in undecided
    assert "<i>No run of ours overfits, which does not refute that others may</i></summary>" in undecided


def test_what_runs_decide_has_their_numbers() -> None:
    spread = Spread(-0.07, -0.77, 0.41)
    schemes = [SchemeVerdict(name, "depends", 1, 2, spread) for name in ("none", "alibi")]
    measured = Measurement("cosine of Max and Min", spread)
    judged = Judgment("0.13", "", "", "", measured, "above 0.3", 2, 4, "depends", "", schemes)
    text = section(errata_page([], {"0.13": judged}), "0-13")
    assert "<i>cosine of Max and Min: −0.07 (−0.77 to 0.41)</i></summary>" in text
    assert "Measured: cosine of Max and Min: −0.07 (−0.77 to 0.41); above 0.3 in 2 of 4 runs.\n\n| scheme |" in text
    assert "0.13 <b>Holds in 2 of 4 runs</b>: " in text
    assert "| none | 1 of 2 | −0.07 (−0.77 to 0.41) |" in text
