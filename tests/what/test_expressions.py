"""The tokenizer of the first tutorial's expressions."""

import pytest
import torch

import whatwhere as ww
from whatwhere.what.expressions import expression_tokenizer, is_expression
from whatwhere.what.text import encode


def test_expressions_have_the_tutorials_ids() -> None:
    digits = {str(digit): 2 + digit for digit in range(10)}
    words = {"First": 12, "Second": 13, "Last": 14, "Max": 15, "Min": 16}
    symbols = {"[PAD]": 0, "[EOS]": 1, "(": 17, ")": 18, ",": 19}
    assert expression_tokenizer().get_vocab() == digits | words | symbols


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("Max(1,6,2)", [15, 17, 3, 19, 8, 19, 4, 18]),
        ("Max( 1, 6 ,\n2 )", [15, 17, 3, 19, 8, 19, 4, 18]),
        ("Second(10,9)", [13, 17, 3, 2, 19, 11, 18]),
        ("First(0)[EOS][PAD]", [12, 17, 2, 18, 1, 0]),
        ("Last(Min(3,4),5)", [14, 17, 16, 17, 5, 19, 6, 18, 19, 7, 18]),
    ],
)
def test_expressions_are_read_character_by_character(expression: str, ids: list[int]) -> None:
    assert encode(expression_tokenizer(), expression)[0] == ids


def test_expressions_come_back_without_white_space() -> None:
    assert expression_tokenizer().decode([15, 17, 3, 19, 8, 19, 4, 18]) == "Max(1,6,2)"


@pytest.mark.parametrize("expression", ["Sum(1,2)", "Max(1;2)", "max(1,2)", "Max(1.5)"])
def test_expressions_have_no_other_tokens(expression: str) -> None:
    with pytest.raises(ww.errors.TextError, match="the tokenizer does not know"):
        encode(expression_tokenizer(), expression)


def test_the_ids_of_an_expression_go_into_a_layer() -> None:
    ids = torch.tensor([expression_tokenizer().encode("Max(1,6,2)").ids])
    assert ww.InputLayer(20, 8, padding_idx=0)(ids).shape == (1, 8, 8)


@pytest.mark.parametrize("text", ["Max(1,6,2)", " First( 2 ,Max(1,2) )\n", "Min(Max(1,2),Last(3))", "Second(0)"])
def test_a_whole_expression_is_recognized(text: str) -> None:
    assert is_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "Max", ")", "Max()", "Max(1,,2)", "Max(12)", "max(1)", "Max(1;2)"),
        *("Max(1,2", "Max(1,2))", "Max(1,2),3", "Max(1,2)Min(1)", "Max(1,6,2).", "The Max(1,2)", "Max(1)[EOS]"),
    ],
)
def test_what_is_not_a_whole_expression_is_not_recognized(text: str) -> None:
    assert not is_expression(text)
