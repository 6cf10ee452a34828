"""Open a model that somebody else has made."""

from whatwhere.interop.huggingface import Config, Description, from_huggingface


def read(config: Config, *, part: str | None = None, like: str | None = None) -> Description:
    """Read the configuration of a model: what its tokens are, and where they stand.

    Args:
        config: a Hugging Face configuration, as a dictionary, an object, or the path of a config.json or its folder.
        part, like: as in `from_huggingface`.

    >>> read({"model_type": "bloom", "vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4}).score[0]
    ALiBi(num_heads=4)
    """
    return from_huggingface(config, part=part, like=like)
