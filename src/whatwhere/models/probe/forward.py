"""Run a model of transformers on sequences made for a probe: the same token at all positions, at chosen positions."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.models.probe.watch import Call, recorded, same_content

if TYPE_CHECKING:
    from transformers.modeling_outputs import BaseModelOutput

FIRST_TOKEN = 5
"""Lower ids are left out: special tokens, among them padding, from which some models count positions."""
SHORT = (2, 6)
"""Sequences and tokens of the first run, which shows what attends."""


@dataclass(frozen=True)
class Subject:
    """A model of transformers, and how it is asked."""

    model: nn.Module
    by_interface: bool
    modules: tuple[str, ...]  # that attend over one sequence, once for each call in order
    crossing: int  # calls that attend over another sequence
    vocab_size: int

    @property
    def accepts_positions(self) -> bool:
        """Whether the model's forward takes position ids, by name or among other options."""
        return self.names_positions or "kwargs" in inspect.signature(self.model.forward).parameters

    @property
    def names_positions(self) -> bool:
        """Whether the model's forward names position ids."""
        return "position_ids" in inspect.signature(self.model.forward).parameters

    def calls(self, contents: int, tokens: int, positions: Sequence[int] | None = None) -> tuple[list[Call], set[str]]:
        """Run the model on sequences, of which the same content reaches attention at all positions.

        Args:
            positions: position ids of the tokens; None leaves them to the model.

        Returns:
            The calls over one sequence, and the names of the modules whose hidden states were replaced.
        """
        with (
            torch.no_grad(),
            recorded(self.model, contents, by_interface=self.by_interface) as calls,
            same_content(self.model, self.modules, contents, tokens) as replaced,
        ):
            forward(self.model, contents, tokens, self.vocab_size, positions)
        found = _own_calls(calls)
        if tuple(call.module for call in found) != self.modules:
            raise CheckpointError("attention is called in another order when sequences differ in length or position.")
        return found, replaced


def forward(
    model: nn.Module, contents: int, tokens: int, vocab_size: int, positions: Sequence[int] | None = None
) -> Any:
    """Run a model on sequences of one token each."""
    ids = (FIRST_TOKEN + torch.arange(contents) % (vocab_size - FIRST_TOKEN))[:, None].expand(-1, tokens)
    names = inspect.signature(model.forward).parameters
    options: dict[str, Any] = {"use_cache": False} if "use_cache" in names else {}
    if positions is not None:
        options["position_ids"] = torch.tensor(positions)[None].expand(contents, -1)
    if "decoder_input_ids" in names:
        options |= {"decoder_input_ids": ids}
        ids = ids[:, :1].expand(-1, tokens + 1)  # another length shows which attention is over another sequence
    if "bbox" in names:  # boxes on a page, all the same: rows of tables, or fractions of the page in UDOP
        fractions = any("cell_2d_embedding" in name for name, _ in model.named_parameters())
        options["bbox"] = torch.zeros(*ids.shape, 4, dtype=torch.float32 if fractions else torch.long)
    config: Any = model.config
    whisper = hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions")
    if "input_ids" in names:
        options["input_ids"] = ids
    elif "input_features" in names and whisper:  # sounds before, tokens after
        frames = (contents, config.num_mel_bins, 2 * config.max_source_positions)
        options["input_features"] = torch.randn(*frames, generator=torch.Generator())
    elif {"decoder_input_ids", "encoder_outputs"} <= set(names):
        options["encoder_outputs"] = encoded(model, contents, tokens + 1)
    else:
        options[next(iter(names))] = ids
    device = next(model.parameters()).device
    return model(**{key: each.to(device) if isinstance(each, Tensor) else each for key, each in options.items()})


def encoded(model: nn.Module, contents: int, tokens: int) -> "BaseModelOutput":
    """Return random vectors in place of what a model's encoder makes of other inputs than tokens, such as sounds."""
    from transformers.modeling_outputs import BaseModelOutput

    config: Any = model.config
    dim = getattr(config, "encoder_config", config).hidden_size
    vectors = torch.randn(contents, tokens, dim, generator=torch.Generator().manual_seed(0))
    outputs: Any = BaseModelOutput(last_hidden_state=vectors.to(next(model.parameters())))
    outputs.attention_mask = None  # of the frames, which encoders of speech return besides
    return outputs  # type: ignore[no-any-return]


def _own_calls(calls: Sequence[Call]) -> list[Call]:
    """Return the calls over one sequence; those of the same queries and keys with other values count once."""
    kept: list[Call] = []
    for call in calls:
        again = kept and kept[-1].module == call.module and kept[-1].query.shape == call.query.shape
        if not call.crosses and not (again and torch.equal(kept[-1].query, call.query)):
            kept.append(call)
    return kept


def subject_of(model: nn.Module) -> Subject:
    """Return how a model can be asked: by transformers' interface, or by watching PyTorch's functions."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocab_size = int(getattr(text, "vocab_size", 0) or 0)
    if vocab_size <= FIRST_TOKEN:
        raise CheckpointError("the probe runs a model on token ids, but its configuration has no vocab_size.")
    for by_interface in (True, False):
        with torch.no_grad(), recorded(model, SHORT[0], by_interface=by_interface) as calls:
            try:
                forward(model, *SHORT, vocab_size)
            except Exception as problem:
                before = "it fails after attention" if calls else "it does not run on token ids alone"
                text = " ".join(str(problem).split())[:200]
                raise CheckpointError(f"{before}: {type(problem).__name__}: {text}") from problem
        own = tuple(call.module for call in _own_calls(calls))
        if own:
            return Subject(model, by_interface, own, sum(call.crosses for call in calls), vocab_size)
    raise CheckpointError(
        "no attention was seen: the model has none, or computes it by functions that a probe does not watch."
    )
