"""Words that sentences of every page share."""


def capital(sentence: str) -> str:
    """Begin a sentence with a capital letter.

    >>> capital("no layer turns")
    'No layer turns'
    """
    return sentence[:1].upper() + sentence[1:]


def count(number: int, one: str) -> str:
    """Count things.

    >>> count(1, "seed"), count(3000, "seed")
    ('1 seed', '3,000 seeds')
    """
    return f"{number:,} {one}{'' if number == 1 else 's'}"
