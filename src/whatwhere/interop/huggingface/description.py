"""What a configuration says of the input layer and of position, in this library's words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from whatwhere.errors import SettingError
from whatwhere.layer import InputLayer
from whatwhere.what.embedding import Scale
from whatwhere.where.binding import Where
from whatwhere.where.doors import InputEncoding, QueryKeyMap, ScoreBias
from whatwhere.where.input.learned import Learned
from whatwhere.where.score.deberta import DeBERTa
from whatwhere.where.score.t5 import T5

LEARNED = (Learned, T5, DeBERTa)


@dataclass(frozen=True)
class Plan:
    """Hold a scheme's class and settings, not yet built: a learned table is allocated when it is asked for.

    Args:
        scheme: the class.
        settings: by name, as its constructor takes them.
        shared: whether layers with this plan have one instance between them, as T5's have, or each its own.

    >>> from whatwhere import Rotary
    >>> Plan(Rotary, {"head_dim": 64, "theta": 500_000.0}).build().theta
    500000.0
    """

    scheme: type[InputEncoding | QueryKeyMap | ScoreBias]
    settings: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = True

    def build(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> InputEncoding | QueryKeyMap | ScoreBias:
        """Make the scheme; device and dtype are for those that hold a table."""
        placed = {"device": device, "dtype": dtype} if issubclass(self.scheme, LEARNED) else {}
        return self.scheme(**self.settings, **placed)

    def __repr__(self) -> str:
        """Show the scheme as it would be written."""
        return f"{self.scheme.__name__}({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


@dataclass(frozen=True)
class Description:
    """Say what a model's tokens are and where they stand, as far as its configuration tells.

    Args:
        model_type: Hugging Face's name of the model.
        part: `decoder` or `encoder` of a model that has both; None for one that has not.
        vocab_size: rows of the token table.
        dim: features of a hidden state.
        token_dim: features of a row of the token table; unlike dim where a projection follows (ALBERT, small ELECTRA).
        num_heads, key_heads: heads of queries, and of keys and values.
        head_dim: features of a query or key that meet in the inner product; where a layer turns more or fewer, its
            plan says so.
        layers: how many.
        input: what is added to the token vectors, or None.
        query_key: what maps queries and keys, one plan or None for each layer.
        score: what is added to the scores, likewise.
        scales: the softmax factor of each layer.
        embedding_scale: what token vectors are multiplied by, or None.
        tied: whether logits are read out with the token table.
        padding_id: the token that is padding, or None.
        max_length: how many positions the configuration names, or None.
        layer_types: of which kind each layer is, where that bears on position, or None.
        notes: what stands between these parts and is not built here, such as norms and tables of sentence kinds.
        used: the keys that were read.
        assumed: what was taken for keys that are absent, as transformers takes it.
    """

    model_type: str
    part: str | None
    vocab_size: int
    dim: int
    token_dim: int
    num_heads: int
    key_heads: int
    head_dim: int
    layers: int
    input: Plan | None
    query_key: tuple[Plan | None, ...]
    score: tuple[Plan | None, ...]
    scales: tuple[float, ...]
    embedding_scale: float | Scale | None
    tied: bool
    padding_id: int | None
    max_length: int | None
    layer_types: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    used: tuple[str, ...] = field(default=(), compare=False)
    assumed: tuple[str, ...] = field(default=(), compare=False)

    @property
    def scale(self) -> float:
        """The softmax factor, where all layers have the same."""
        if len(set(self.scales)) != 1:
            raise SettingError(f"the layers have softmax scales of their own, {self.scales}: see `scales`.")
        return self.scales[0]

    @property
    def position_offset(self) -> int:
        """How many rows of the position table stand before that of position 0: 2 in OPT and RoBERTa."""
        return 0 if self.input is None else int(self.input.settings.get("offset", 0))

    def wheres(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> list[Where]:
        """Build one Where for each layer.

        The scheme of the input door, if any, is in the first: position is added once. Layers that share a scheme hold
        the same instance, so that `whatwhere.bind` works it out once; each learned table is drawn anew.

        >>> from whatwhere import bind, from_huggingface, positions
        >>> config = {"model_type": "qwen2", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
        ...           "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1_000_000.0}
        >>> wheres = from_huggingface(config).wheres()
        >>> wheres[0].query_key is wheres[1].query_key, len(bind(wheres, positions(8)))
        (True, 2)
        """
        made: list[tuple[Plan, nn.Module]] = []

        def build(plan: Plan | None) -> Any:
            if plan is None:
                return None
            known = next((module for other, module in made if other == plan), None) if plan.shared else None
            if known is None:
                known = plan.build(device, dtype)
                made.append((plan, known))
            return known

        wheres = []
        for layer in range(self.layers):
            query_key, score = build(self.query_key[layer]), build(self.score[layer])
            wheres.append(
                Where(
                    build(self.input) if layer == 0 else None,
                    query_key,
                    score,
                    scale=self._own_scale(layer, query_key, score),
                )
            )
        return wheres

    def input_layer(
        self, where: Where | None = None, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> InputLayer:
        """Build the token table and what is added to it.

        Args:
            where: the first of `wheres()`, to take its scheme; None builds one.
            device, dtype: of the tables.

        >>> from whatwhere import from_huggingface
        >>> layer = from_huggingface({"model_type": "gpt2", "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4,
        ...                           "n_positions": 64}).input_layer()
        >>> layer(torch.tensor([[4, 2, 7]])).shape
        torch.Size([1, 3, 32])
        """
        if self.input is not None and self.input.settings.get("dim") != self.token_dim:
            raise SettingError(
                f"a projection from {self.token_dim} to {self.input.settings.get('dim')} features stands between the "
                "token table and the positions of this model, which InputLayer does not have.\n"
                "Take the parts: TokenEmbedding(vocab_size, token_dim), your projection, then wheres()[0].input."
            )
        plan = where.input if where is not None else None if self.input is None else self.input.build(device, dtype)
        return InputLayer(
            self.vocab_size,
            self.token_dim,
            plan if isinstance(plan, InputEncoding) else None,
            scale=self.embedding_scale,
            padding_id=self.padding_id,
            device=device,
            dtype=dtype,
        )

    def _own_scale(self, layer: int, *schemes: QueryKeyMap | ScoreBias | None) -> float | None:
        """Give the scale if it is neither the usual one nor that of a scheme."""
        scale = self.scales[layer]
        if scale == self.head_dim**-0.5 or any(scheme is not None and scheme.scale == scale for scheme in schemes):
            return None
        return scale
