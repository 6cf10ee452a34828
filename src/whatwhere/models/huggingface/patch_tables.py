"""Replacements for tables of positions whose class has a forward of its own, or that are no module: rows computed here.

The class of such a table finds the index of each row (offsets, padding, a KV cache); its rows are ours.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.models.configuration.description import Description
from whatwhere.position.positions import positions
from whatwhere.where.input.learned import rows_at
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.rotary import Rotary

ROUNDED = 2e-4
"""Largest difference of a table of transformers, some of which round angles to float32, from the exact one."""


class LearnedRows(nn.Embedding):
    """Look up rows in place of nn.Embedding, below a class that finds their indices."""

    def forward(self, input: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return the rows at these indices."""
        return rows_at(self.weight, input)


class LearnedRowsOfSlots(LearnedRows):
    """Look up the rows of slots, in place of the forward of Whisper's table, which indexes its weight itself."""

    def forward(
        self, input_ids: Tensor, past_key_values_length: int = 0, position_ids: Tensor | None = None
    ) -> Float[Tensor, "*shape dim"]:
        """Return the rows of these positions, or of the slots after those of the cache."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=self.weight.device) + past_key_values_length
        return super().forward(position_ids)


class SinusoidalRows(nn.Embedding):
    """Compute rows of sines before cosines in place of nn.Embedding, below a class that finds their indices."""

    scheme: Sinusoidal

    def forward(self, input: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return the vectors of these positions."""
        vectors: Tensor = self.scheme(input.reshape(1, -1))
        return vectors.reshape(*input.shape, -1).to(self.weight.dtype)


class FairseqRows(nn.Module):
    """The table that modules of fairseq's sinusoids (M2M100, XGLM) make of themselves, and of longer sequences."""

    @staticmethod
    def get_embedding(
        num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
    ) -> Float[Tensor, "rows features"]:
        """Compute the rows; that of padding_idx is zero."""
        table: Tensor = Sinusoidal(embedding_dim, layout="tensor2tensor")(torch.arange(num_embeddings)[None])[0]
        if padding_idx is not None:
            table[padding_idx] = 0
        return table.to(torch.get_default_dtype())


class SinusoidsOfSlots(nn.Module):
    """The forward of PEGASUS-X's sinusoids, which are computed anew in each call."""

    scheme: Sinusoidal

    def forward(
        self,
        inputs_embeds: Float[Tensor, "batch tokens dim"],
        past_key_values_length: int = 0,
        position_ids: Integer[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the vectors of these positions, or of the slots after those of the cache."""
        slots = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past_key_values_length
        slots = slots if position_ids is None else position_ids
        rows: Tensor = self.scheme(slots.reshape(1, -1))
        return rows.to(inputs_embeds.dtype).expand(inputs_embeds.shape[0], -1, -1)


def rotary_rows(module: nn.Module, scheme: Rotary) -> Float[Tensor, "positions features"]:
    """Return the table of sines before cosines that GPT-J's and CodeGen's attention keeps, computed by ours.

    It is no buffer, so that a cast of the model does not round it.

    Args:
        module: the attention, with the buffer `embed_positions`.

    Raises:
        CheckpointError: If the rows are not those that it has.
    """
    before = module.get_buffer("embed_positions")
    cos, sin = (part[0, 0] for part in scheme.bind(positions(len(before), device=before.device)))
    exact = torch.cat([sin, cos], dim=-1)
    _require_near(type(module).__name__, before, exact)
    return exact


def _require_near(name: str, table: Tensor, exact: Tensor) -> None:
    """Raise CheckpointError unless a table is another, within its rounding."""
    allowed = max(ROUNDED, torch.finfo(table.dtype).eps)
    if table.shape != exact.shape or not bool(((table.float() - exact).abs() <= allowed).all()):
        raise CheckpointError(
            f"this model's {name} does not have the positions that its configuration states.\n"
            "If its table was changed after loading, load the model again."
        )


def _make_weights(module: Any, sizes: tuple[Any, ...]) -> None:
    module.make_weights(*sizes)


def replace_table(patched: Any, name: str, module: nn.Module, description: Description) -> None:
    """Replace a table of positions that is no plain nn.Embedding, if this module is one.

    Raises:
        CheckpointError: If its rows are not those of the configuration.
    """
    kind, buffers = type(module).__name__, dict(module.named_buffers(recurse=False))
    if isinstance(module, nn.Embedding) and type(module) is not nn.Embedding:
        if kind.endswith("LearnedPositionalEmbedding") and description.input is not None:
            patched.replace_method(name, LearnedRows, below=True)
        elif kind.endswith("WhisperPositionalEmbedding") and description.input is not None:
            patched.replace_method(name, LearnedRowsOfSlots)
        elif kind.endswith("SinusoidalPositionalEmbedding"):
            scheme, weight = Sinusoidal(module.embedding_dim, layout="half"), module.weight.detach()
            if not weight.is_meta:
                _require_near(kind, weight, scheme(torch.arange(len(weight), device=weight.device)[None])[0])
            patched.replace_method(name, SinusoidalRows, below=True, scheme=scheme)
    elif kind.endswith("SinusoidalPositionalEmbedding") and "weights" in buffers:
        before: Any = module
        sizes = (*before.weights.shape, before.padding_idx)
        _require_near(kind, before.weights, FairseqRows.get_embedding(*sizes).to(before.weights.device))
        patched.replace_method(name, FairseqRows, renew=partial(_make_weights, before, sizes))
    elif kind == "PegasusXSinusoidalPositionalEmbedding":
        patched.replace_method(name, SinusoidsOfSlots, scheme=Sinusoidal(description.dim, layout="tensor2tensor"))
    elif "embed_positions" in buffers:
        rotary = next((plan.build() for plan in description.query_key if plan is not None), None)
        if isinstance(rotary, Rotary):
            patched.replace_attribute(name, "embed_positions", rotary_rows(module, rotary))
