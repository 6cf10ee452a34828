"""`Window`: which keys the queries of a layer see, beside causality and documents."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import PositionError, SettingError

if TYPE_CHECKING:  # configurations are read without PyTorch
    from jaxtyping import Bool, Int64
    from torch import Tensor

    from whatwhere.position.positions import Positions

By = Literal["order", "coordinates"]


@dataclass(frozen=True, repr=False)
class Window:
    """A sliding window, or chunks, outside of which a layer does not attend: a part of a Where.

        sliding       |t_i - t_j| < size   or   t_j < first
        chunked       t_i // size = t_j // size   or   t_j < first

    t counts the tokens of a document. By `order`, from its first token, so packed documents and padded sequences have
    the windows and chunks that they have alone, as in transformers (Mistral's windows, Llama 4's chunks). By
    `coordinates` it is the position that schemes see, which may be sampled, repeat, or come from the task.

    Later keys are masked by causality alone: without it a sliding window reaches equally far to both sides.

    Args:
        size: number of tokens, including that of the query, to one side; at least 1.
        chunked: whether tokens attend within chunks of this size, rather than to the nearest tokens.
        first: number of first tokens of each document that all its later tokens see (streaming attention sinks).
        by: what t is: the `order` of tokens, or their `coordinates`, which then need a single axis.

    Raises:
        ShapeError: If size is not a whole number of at least 1.
        SettingError: If first is not a whole number of 0 or more, or `by` is unknown.

    Examples:
        >>> from whatwhere import positions
        >>> Window(2).mask(positions(4))[0, 0].int().tolist()
        [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
        >>> Window(2, chunked=True).mask(positions(4))[0, 0].int().tolist()
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    """

    size: int
    chunked: bool = False
    first: int = 0
    by: By = "order"

    def __post_init__(self) -> None:
        require_whole("Window", size=self.size)
        require_choice("Window", "by", self.by, ("order", "coordinates"))
        if not isinstance(self.chunked, bool):
            raise SettingError(f"Window got chunked={self.chunked!r}, but needs True or False.")
        if isinstance(self.first, bool) or not isinstance(self.first, int) or self.first < 0:
            raise SettingError(
                f"Window got first={self.first!r}, but needs the number of first tokens that stay visible, 0 or more."
            )

    def __repr__(self) -> str:
        settings = [str(self.size)]
        settings += ["chunked=True"] if self.chunked else []
        settings += [f"first={self.first}"] if self.first else []
        settings += [f"by={self.by!r}"] if self.by != "order" else []
        return f"Window({', '.join(settings)})"

    def counted(self, tokens: "Positions", *present: "Positions") -> "Int64[Tensor, 'batch tokens']":
        """Return t of each token: its number in its document, which begins at the first one present, or its coordinate.

        Raises:
            PositionError: If coordinates count, but there are several axes.
        """
        if self.by == "coordinates":
            return tokens.single_axis("Window(by='coordinates')")
        if self.chunked or self.first:
            return tokens.order_in_document(*present)
        return tokens.order  # of a distance, the document's start is no matter

    def allowed(self, queries: "Positions", keys: "Positions") -> "Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]":
        """Return the window as a formula by element, without documents and causality."""
        at_query, at_key = self.counted(queries, keys), self.counted(keys, queries)

        def rule(b: "Tensor", h: "Tensor", i: "Tensor", j: "Tensor") -> "Tensor":
            return self._sees(at_query[b % at_query.shape[0], i], at_key[b % at_key.shape[0], j])

        return rule

    def mask(self, queries: "Positions", keys: "Positions | None" = None) -> "Bool[Tensor, 'batch 1 queries keys']":
        """Compute the mask of the window alone; that of documents and causality is `queries.mask(keys)`.

        It is True where a key is within the window of a query; without `keys`, the queries are the keys.
        """
        keys = queries if keys is None else keys
        at_query, at_key = self.counted(queries, keys), self.counted(keys, queries)
        return self._sees(at_query[:, None, :, None], at_key[:, None, None, :])

    def near(
        self, at_queries: "Int64[Tensor, 'query_batch queries']", at_keys: "Int64[Tensor, 'key_batch keys']"
    ) -> "Bool[Tensor, 'batch keys']":
        """Return which keys some of these queries may see, and those between, by their t as `counted` returns it."""
        least, most = at_queries.amin(-1, keepdim=True), at_queries.amax(-1, keepdim=True)
        if self.chunked:
            near = (at_keys >= least // self.size * self.size) & (at_keys < (most // self.size + 1) * self.size)
        else:
            near = (at_keys > least - self.size) & (at_keys < most + self.size)
        return near | (at_keys < self.first) if self.first else near

    def reach(self, causal: bool) -> int:
        """Return how many keys a query sees at most."""
        sides = 1 if causal or self.chunked else 2
        return self.size * sides + self.first

    def covers(self, tokens: "Positions") -> bool:
        """Return whether no two of these tokens, of one document, are outside of each other's window."""
        from whatwhere.tensor_checks import readable

        if self.by == "order" and not self.chunked:
            return tokens.tokens <= self.size
        if tokens.tokens == 0 or not readable(tokens.index):
            # Positions that are counted from a start are below max_length, and slots are below the number of tokens.
            return self.by == "order" and max(tokens.tokens, tokens.max_length or self.size + 1) <= self.size
        counts = self.counted(tokens)
        least, most = counts.amin(-1), counts.amax(-1)
        if self.chunked:
            return bool((least // self.size == most // self.size).all())
        return bool((most - least < self.size).all())

    def kept(self, keys: "Positions") -> "Int64[Tensor, ' kept']":
        """Return the slots of the keys in a KV cache that later queries can see; all others can be deleted.

        Later queries are those of `next` and `append`: t grows within a document. Where the window counts from the
        start of documents, the first token of each stays, because it says where that is.

        Returns:
            Slots in increasing order, of all sequences together: `k[:, :, slots]`, and `keys[slots]`.

        Raises:
            PositionError: If coordinates count, but they do not grow within a document.

        Examples:
            >>> from whatwhere import positions
            >>> Window(4).kept(positions(9))  # the next query, at 9, sees three of them and itself
            tensor([6, 7, 8])
            >>> Window(4, first=1).kept(positions(9))
            tensor([0, 6, 7, 8])
        """
        at_key = self.counted(keys)
        if self.by == "coordinates":
            seen = self._sees(self._next_coordinates(keys), at_key)
        else:
            seen = self._sees(at_key + keys.order_to_end() + 1, at_key)
            if self.chunked or self.first:
                seen = seen | (at_key == 0)
        if keys.segment is not None:
            seen = seen & (keys.segment >= 0)
        return seen.any(0).nonzero()[:, 0]

    def _next_coordinates(self, keys: "Positions") -> "Tensor":
        """Return the next coordinate of each key's document; raise PositionError where coordinates do not grow."""
        index, order = keys.index[0], keys.order
        falls = (index.diff(dim=-1) <= 0) & (order.diff(dim=-1) > 0)
        if keys.segment is not None:
            falls = falls & (keys.segment.diff(dim=-1) == 0) & (keys.segment[:, 1:] >= 0)
        if bool(falls.any()):
            raise PositionError(
                "the coordinates of these keys do not grow within a document, so nothing says which of them later "
                "queries see.\nKeep all keys, or use a window by order."
            )
        return keys.lengths()

    def _sees(self, at_query: "Tensor", at_key: "Tensor") -> "Tensor":
        """Return which keys are within the windows of queries, by their t."""
        size = self.size
        near = at_query // size == at_key // size if self.chunked else (at_query - at_key).abs() < size
        return near | (at_key < self.first) if self.first else near


def as_window(window: "Window | int | None", chunk: int | None = None) -> Window | None:
    """Return a window that was given as a Window, as its size, or as the size of chunks."""
    if window is not None and chunk is not None:
        raise SettingError(
            f"Where got window={window!r} and chunk={chunk!r}, but a layer has one of them.\nPass window=Window(...)."
        )
    if chunk is not None:
        return Window(chunk, chunked=True)
    if window is None or isinstance(window, Window):
        return window
    if isinstance(window, bool) or not isinstance(window, int):
        raise SettingError(
            f"Where got window={window!r}, but needs a number of tokens or a Window.\nPass window=512, or "
            "window=Window(512, first=4)."
        )
    return Window(window)
