"""The language of the first tutorial, such as Max(1,6,2): its 20 tokens, its tokenizer, and what belongs to it."""

import re

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from whatwhere.what.text import NO_UNKNOWN, words

OPERATORS = ("First", "Second", "Last", "Max", "Min")
EXPRESSION_TOKENS: tuple[str, ...] = ("[PAD]", "[EOS]", *"0123456789", *OPERATORS, *"(),")
"""The tokens in the order of their ids: digits are 2-11, the operators 12-16."""

_TOKEN = re.compile(rf"({'|'.join(OPERATORS)})|(\d)|([(),])|(\S)", re.ASCII)
_FOLLOWERS = {
    "start": ("operator",),
    "operator": ("(",),
    **dict.fromkeys("(,", ("operator", "digit")),
    **dict.fromkeys(("digit", ")"), (",", ")")),
}
"""Which tokens may follow a token, by their class."""
RECOGNIZED = "that of the first tutorial's expressions, because the whole text is one"


def expression_tokenizer() -> Tokenizer:
    """Create the tokenizer of the tutorial's expressions, with its ids.

    [PAD] 0, [EOS] 1, digits 2-11, First 12, Second 13, Last 14, Max 15, Min 16, ( 17, ) 18, comma 19. White space is
    ignored; anything else is an error.

    Examples:
        >>> expression_tokenizer().encode("Max(1,6,2)").ids
        [15, 17, 3, 19, 8, 19, 4, 18]
    """
    vocabulary = {token: number for number, token in enumerate(EXPRESSION_TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=NO_UNKNOWN))
    # Letters stay together, every other character is a token of its own: 16 is the digits 1 and 6.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(r"\[PAD\]|\[EOS\]|\p{L}+|[^\p{L}]"), behavior="isolated"),
        ]
    )
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def is_expression(text: str) -> bool:
    """Return whether a text is one whole expression: an operator with arguments, digits or expressions."""
    before, depth = "start", 0
    for operator, digit, symbol, other in _TOKEN.findall(text):
        kind = "operator" if operator else "digit" if digit else symbol or other
        depth += (kind == "(") - (kind == ")")
        if kind not in _FOLLOWERS[before] or (kind == "," and depth < 1):
            return False
        before = kind
    return before == ")" and depth == 0


def tokenizer_of(text: str) -> tuple[Tokenizer, str]:
    """Return the tokenizer of a text for which none was chosen, and what it is, in words.

    That of the first tutorial for an expression; of any other text each new word gets the next id.
    """
    if is_expression(text):
        return expression_tokenizer(), RECOGNIZED
    described = "none chosen: each new word of the text gets the next id"
    if is_expression(text.title()):
        described += f"; as an expression it is written {text.title()}"
    return words(text), described
