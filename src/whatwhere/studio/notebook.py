"""The studio inside a notebook: the exported page in a frame of its own."""

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from whatwhere.atomic import write_atomic
from whatwhere.errors import SettingError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import Contents, InTorch
from whatwhere.studio.export import render_page, writing
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from torch import nn

LOWEST, HIGHEST = 200, 10_000


@final
class Shown:
    """A page that a notebook shows, and that can be saved as a file of its own.

    Attributes:
        page: the whole HTML document.
    """

    def __init__(self, page: str, height: int, name: str) -> None:
        self.page, self._height, self._name = page, height, name

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, which any browser opens."""
        target = Path(path)
        with writing(target):
            write_atomic(target, self.page)
        return target

    def _repr_html_(self) -> str:
        """Return what Jupyter shows: a frame whose scripts reach neither the notebook nor the network."""
        return (
            f'<iframe title="whatwhere studio: {html.escape(self._name)}" sandbox="allow-scripts allow-downloads" '
            f'width="100%" height="{self._height}" style="border:0" srcdoc="{html.escape(self.page)}"></iframe>'
        )

    def __repr__(self) -> str:
        """Describe what it is where nothing shows HTML."""
        return f"Shown({self._name!r}, {len(self.page):,} characters); save('studio.html') writes a page for a browser"


def show(model: Any = None, tokenizer: Any = None, *, height: int = 820) -> Shown:
    """Show the studio on a model inside a notebook, as an exported page, which needs no server.

    A notebook shows the result where it is the last line of a cell. The map holds the neighbors of all tokens, which
    for 30,000 tokens take half a minute to find.

    Args:
        model: a path, what `whatwhere.read` returns, or a module of PyTorch; None is a small fresh table.
        tokenizer: of a module, to name its tokens: one of the `tokenizers` library, or one of transformers that has it
            inside.
        height: of the frame, in pixels, 200 to 10,000.

    Raises:
        SettingError: If height is out of range, or model or tokenizer is something else.

    Examples:
        >>> shown = show()  # doctest: +SKIP
        >>> shown.save("studio.html")  # doctest: +SKIP
    """
    if isinstance(height, bool) or not isinstance(height, int) or not LOWEST <= height <= HIGHEST:
        raise SettingError(
            f"show got height={height!r}, but needs a whole number of pixels from {LOWEST:,} to {HIGHEST:,}."
        )
    session = _session(model, tokenizer)
    return Shown(render_page(session), height, session.name)


def _session(model: Any, tokenizer: Any) -> Session:
    if model is None or isinstance(model, str | Path | Checkpoint):
        if tokenizer is not None:
            raise SettingError("show got a tokenizer for what has its own.\nPass it together with a module of PyTorch.")
        return Session(model) if isinstance(model, Checkpoint) else Session.open(model)
    if not hasattr(model, "state_dict"):
        raise SettingError(
            f"show got a {type(model).__name__}, but takes a path, what whatwhere.read returns, or a module of PyTorch."
        )
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if inner is not None and not hasattr(inner, "decode_batch"):
        raise SettingError(
            f"show got a {type(tokenizer).__name__} as tokenizer, which has none of the tokenizers library inside.\n"
            "Pass tokenizers.Tokenizer, or a fast tokenizer of transformers."
        )
    if inner is not None:
        inner = type(inner).from_str(inner.to_str())  # a copy of our own, for the caller's may pad
        inner.no_padding()
        inner.no_truncation()
    session = Session(live(model, inner))
    session.once("tokenizer", lambda: inner)
    return session


def live(model: "nn.Module", tokenizer: Any = None) -> Checkpoint:
    """Return the tensors of a module as a checkpoint, read from the module when they are needed.

    Examples:
        >>> import torch
        >>> live(torch.nn.Embedding(20, 4)).entry("weight").shape
        (20, 4)
    """
    from whatwhere.what.embedding import TokenEmbedding

    path = Path(type(model).__name__)
    tensors = {name: each for name, each in model.state_dict().items() if hasattr(each, "detach")}
    entries = {name: InTorch.of(name, each, path) for name, each in tensors.items()}
    ours = [name for name, part in model.named_modules() if isinstance(part, TokenEmbedding)]
    table = ".".join(filter(None, (ours[0], "weight"))) if ours else None
    if len(entries) == 1 and table is None:
        table = next(iter(entries))
    config = getattr(model, "config", None)
    settings: dict[str, Any] | None = config.to_dict() if config is not None and hasattr(config, "to_dict") else None
    words = None if tokenizer is None else _words(tokenizer)
    return Checkpoint(path, Contents("memory", entries, lambda: words, settings, token_table=table))


def _words(tokenizer: Any) -> list[str]:
    known: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    words = [""] * (max(known.values(), default=-1) + 1)
    for word, number in known.items():
        words[number] = word
    return words
