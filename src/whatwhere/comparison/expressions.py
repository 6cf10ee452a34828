"""The language of the first tutorial: expressions such as Max(1,6,2), in 20 tokens."""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from whatwhere.what.text import NO_UNKNOWN

EXPRESSION_TOKENS: tuple[str, ...] = (
    *("[PAD]", "[EOS]"),
    *"0123456789",
    *("First", "Second", "Last", "Max", "Min"),
    *"(),",
)
"""The tokens in the order of their ids: digits are 2-11, the functions 12-16."""


def expression_tokenizer() -> Tokenizer:
    """Return the tokenizer of the tutorial's expressions, with its ids.

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
