"""Probe a model: measure what its attention does with positions, instead of reading its configuration."""

from threading import Lock
from typing import TYPE_CHECKING

import torch

from whatwhere.models.probe.findings import Probe as Probe
from whatwhere.models.probe.measure import input_of, layers_of, natural_run
from whatwhere.models.probe.record import subject_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ALONE = Lock()  # a process has one registry of attention functions


def probe(model: "PreTrainedModel") -> Probe:
    """Measure where positions enter a model of transformers: by layer, from what reaches its attention.

    The model is run on a few short sequences, with the same content at all positions; no table of model types is
    read. Attention is recorded through transformers' AttentionInterface, or where a model does not use it by watching
    PyTorch's functions.

    Args:
        model: a loaded or random model of transformers.

    Returns:
        Of each layer: the map of queries and keys, scale, bias, span, sink; and what was not measured, with the reason.

    Raises:
        CheckpointError: If it does not run on token ids alone, or no attention is seen.

    Examples:
        >>> from whatwhere.models.probe.tiny import tiny_config, tiny_model
        >>> found = probe(tiny_model(tiny_config("llama")))
        >>> found.layers[0].query.kind, found.layers[0].query.layout, found.layers[0].scale
        ('rotary', 'half', 0.25)
    """
    import transformers

    notes: list[str] = []
    with _ALONE:
        training = model.training
        model.train(False)
        try:
            subject = subject_of(model)
            run = natural_run(subject)
            layers, follows = layers_of(subject, run, notes)
            change, embedding_scale = input_of(subject, run)
        finally:
            model.train(training)
    return Probe(
        str(getattr(model.config, "model_type", "")),
        type(model).__name__,
        "interface" if subject.by_interface else "functions",
        follows,
        change,
        layers,
        subject.crossing,
        embedding_scale,
        tuple(dict.fromkeys(notes)),
        str(torch.__version__),
        transformers.__version__,
    )
