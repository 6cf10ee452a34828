"""Training: steps of the comparison's small Transformer, beside a plain PyTorch loop of the same sizes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Candidate, Case, Run, Scale, Variant
from whatwhere.comparison import train
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Expressions

PLAIN = "plain torch loop, AdamW's defaults"
_STEPS = 10
_ARGUMENTS = 7  # 16 tokens


def variants(scale: Scale) -> list[Variant]:
    """Return the requested number of threads, and one, as each run of a comparison has.

    Args:
        scale: quick or full, device and threads.
    """
    return [
        Variant(
            f"{threads} thread{'s' if threads > 1 else ''}",
            limit=PLAIN,
            prepare=partial(_prepare, scale, threads),
            steps=1 if scale.quick else _STEPS,
        )
        for threads in sorted({scale.threads, 1}, reverse=True)
    ]


def _prepare(scale: Scale, threads: int) -> list[Candidate]:
    return _Inputs(scale, threads).candidates()


class _Inputs:
    """The task and the sizes of a variant, and the candidates."""

    def __init__(self, scale: Scale, threads: int) -> None:
        self.threads = threads
        self.task = Expressions(trained=(_ARGUMENTS,))
        sizes: dict[str, Any] = (
            {"dim": 16, "heads": 2, "feedforward": 16, "batch": 4} if scale.quick else {"batch": 256}
        )
        steps = 1 if scale.quick else _STEPS
        self.settings = make_settings("expressions", [8], steps=steps, device=scale.device, **sizes)

    def candidates(self) -> list[Candidate]:
        ways: list[tuple[str, Callable[[], Run]]] = [
            (PLAIN, partial(self._plain, {})),
            ("whatwhere compare, learned", partial(self._ours, "learned")),
            ("whatwhere compare, rotary", partial(self._ours, "rotary")),
            ("plain torch loop, fused AdamW", partial(self._plain, {"fused": True})),
        ]
        return [Candidate(name, partial(self._threaded, make)) for name, make in ways]

    def _threaded(self, make: Callable[[], Run]) -> Run:
        train_some = make()

        def run() -> None:
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            try:
                train_some()
            finally:
                torch.set_num_threads(before)

        return run

    def _ours(self, scheme: str) -> Run:
        model = train.build(scheme, 0, self.task, self.settings)

        def run() -> None:
            train.train(model, 0, self.task, self.settings)

        return run

    def _plain(self, options: dict[str, Any]) -> Run:
        settings, task, device = self.settings, self.task, self.settings.resolved_device
        torch.manual_seed(0)
        model = PlainTransformer(task.vocab_size, task.token_count(_ARGUMENTS), settings).to(device)

        def run() -> None:
            generator = torch.Generator().manual_seed(1000)
            optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, **options)
            for _ in range(settings.steps):
                batch = task.sample(settings.batch, generator)
                with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                    logits = model(batch.ids.to(device), batch.at)
                    loss = F.cross_entropy(logits.float(), batch.targets.to(device), ignore_index=-100)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

        return run


class PlainTransformer(nn.Module):
    """The comparison's Transformer as PyTorch's own layers make it, with a learned table of positions."""

    def __init__(self, vocab_size: int, tokens: int, settings: Settings) -> None:
        super().__init__()
        dim = settings.dim
        self.tokens, self.positions = nn.Embedding(vocab_size, dim), nn.Parameter(torch.randn(tokens, dim) * 0.02)
        options: dict[str, Any] = {"activation": "gelu", "batch_first": True, "norm_first": True, "dropout": 0.0}
        layer = nn.TransformerEncoderLayer(dim, settings.heads, settings.feedforward, **options)
        self.layers = nn.TransformerEncoder(layer, settings.layers, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.lm_head = nn.Linear(dim, vocab_size, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(tokens), persistent=False)

    def forward(self, ids: Int64[Tensor, "batch tokens"], at: int | None) -> Float[Tensor, "batch *tokens vocab_size"]:
        """Return the logits of the answer.

        Args:
            ids: of the tokens.
            at: the position of the answer; None returns those of all positions.
        """
        x = self.layers(self.tokens(ids) + self.positions, mask=self.mask, is_causal=True)
        logits: Tensor = self.lm_head(x if at is None else x[:, at])
        return logits


CASE = Case(
    "training",
    "a training step of `whatwhere compare`: 2 layers, dim 64, 4 heads, 16 tokens, batch 256",
    "Sampling the batch, forward, backward, clipping, AdamW; times are of one step. Everything is divided by a loop "
    "over nn.TransformerEncoderLayer with AdamW as it is by default.",
    variants,
)
