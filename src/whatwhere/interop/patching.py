"""Put our input layer and positions into a loaded model of Hugging Face, and take them out again."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.interop.adapters import (
    RotaryTables,
    bucket_bias,
    position_table,
    relative_alibi,
    rotary_tables,
    token_table,
)
from whatwhere.interop.huggingface import Description, from_huggingface
from whatwhere.interop.huggingface.families.rotary import ROTARY
from whatwhere.interop.huggingface.families.whole import WHOLE
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.input.learned import Learned
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.t5 import T5

TURNING = (*WHOLE, *ROTARY, "falcon", "gpt_neox", "gpt_neox_japanese")
LEARNED = (
    "albert", "bert", "bert-generation", "camembert", "data2vec-text", "distilbert", "electra", "ernie", "gpt2",
    "gpt_bigcode", "gpt_neo", "megatron-bert", "openai-gpt", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl",
)  # fmt: skip
BIASED = ("bloom", "mt5", "switch_transformers", "t5", "umt5")
PATCHED = tuple(sorted((*TURNING, *LEARNED, *BIASED)))
"""The model types that `patch` knows."""

TOKENS = ("embed_in", "embed_tokens", "shared", "tok_embeddings", "tokens_embed", "word_embeddings", "wte")
POSITIONS = ("position_embeddings", "positions_embed", "wpe")
OURS = (Learned, RotaryTables, TokenEmbedding)


class Patch:
    """Hold what was changed in a model, and the way back. Made by `patch`.

    Args:
        model: the model.
        description: what its configuration says.
        regime_length: as in `patch`.
    """

    def __init__(self, model: nn.Module, description: Description, regime_length: int | None = None) -> None:
        self.model, self.description, self.regime_length = model, description, regime_length
        self.replaced: list[str] = []
        self._back: list[Callable[[], None]] = []
        self._stand_ins: dict[int, nn.Module] = {}

    def undo(self) -> None:
        """Put the model's own modules back; they hold the same parameters, whatever happened to these meanwhile."""
        while self._back:
            self._back.pop()()
        self.replaced.clear()

    def __enter__(self) -> "Patch":
        """Stay until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo."""
        self.undo()

    def __repr__(self) -> str:
        """Show what was replaced."""
        return f"Patch({self.description.model_type}, replaced={self.replaced})"

    def replace_module(self, name: str, make: Callable[[], nn.Module]) -> None:
        """Put a module in the place of another; one that stands in several places is replaced by one."""
        path, _, own = name.rpartition(".")
        parent = self.model.get_submodule(path)
        original = getattr(parent, own)
        if id(original) not in self._stand_ins:
            self._stand_ins[id(original)] = make()
        module = self._stand_ins[id(original)]

        def back() -> None:
            if isinstance(module, Learned | TokenEmbedding):
                original.weight = module.weight  # another parameter, if somebody has loaded a new one
            setattr(parent, own, original.to(_device(self.model)))

        setattr(parent, own, module)
        self._remember(name, back)

    def replace_method(self, name: str, method: str, function: Callable[..., Any]) -> None:
        """Put a function in the place of a method of one module."""
        module = self.model.get_submodule(name)
        if method in vars(module):  # it stands in another place as well, and has been replaced there
            return
        vars(module)[method] = function
        self._remember(f"{name}.{method}", lambda: vars(module).pop(method))

    def before(self, name: str, hook: Callable[..., Any]) -> None:
        """Call a function before a module is called; it may change the arguments."""
        handle = self.model.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True)
        self._remember(f"{name}()", handle.remove)

    def _remember(self, name: str, back: Callable[[], Any]) -> None:
        self.replaced.append(name)
        self._back.append(back)


def patch(model: nn.Module, *, regime_length: int | None = None) -> Patch:
    """Put our token table and positions into a loaded Hugging Face model; its outputs stay the same.

    Token and position tables are replaced by ours with the very same parameters, so state_dict, tied heads and
    optimizers notice nothing; rotary modules by ours, whose angles are exact at any position and which no cast of the
    model can round; ALiBi by that of distances, T5's buckets by ours. Projections, norms and attention stay theirs.

    Args:
        model: of a type in `whatwhere.interop.patching.PATCHED`, with or without a head.
        regime_length: the length that DynamicNTK and LongRoPE shall assume. None is the longest position of each call,
            as in transformers, where keys that a cache holds do not follow; state one to generate.

    Gives a Patch: `undo()` takes all out again, as does the end of a `with` block.

    >>> from types import SimpleNamespace
    >>> class Llama(torch.nn.Module):
    ...     config = {"model_type": "llama", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1,
    ...               "num_attention_heads": 2}
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embed_tokens = torch.nn.Embedding(10, 8)
    >>> model = Llama()
    >>> with patch(model) as patched:
    ...     patched.replaced, type(model.embed_tokens).__name__
    (['embed_tokens'], 'TokenEmbedding')
    """
    config = getattr(model, "config", None)
    if config is None:
        raise SettingError(
            f"patch needs a model of Hugging Face, which has a config, but got {_article(type(model).__name__)}.\n"
            "In a model of your own put the parts in yourself: from_huggingface(config).wheres()."
        )
    if regime_length is not None:
        require_whole("patch", regime_length=regime_length)
    description = from_huggingface(config)
    biased = any(plan is not None for plan in description.score) and description.model_type not in BIASED
    if description.model_type not in PATCHED or biased:
        raise CheckpointError(
            f"patch does not know {description.model_type!r}{' with a bias' if biased else ''}, whose modules work in "
            f"another way.\nIt knows: {', '.join(PATCHED)}."
        )
    if any(isinstance(module, OURS) for module in model.modules()):
        raise SettingError("this model is patched already: call undo() on the first patch.")
    made = Patch(model, description, regime_length)
    try:
        for name, module in list(model.named_modules(remove_duplicate=False)):
            _replace(made, name, module)
    except Exception:
        made.undo()
        raise
    return made


def _replace(made: Patch, name: str, module: nn.Module) -> None:
    """Replace one module, if it is one of those."""
    own, kind, description = name.rpartition(".")[2], type(module).__name__, made.description
    if isinstance(module, nn.Embedding) and own in TOKENS:
        scale = description.embedding_scale if "Scaled" in kind else None
        made.replace_module(name, lambda: token_table(module, scale))
    elif isinstance(module, nn.Embedding) and own in POSITIONS and description.model_type in LEARNED:
        made.replace_module(name, lambda: position_table(module))
    elif kind.endswith("RotaryEmbedding") and "Vision" not in kind:
        if turning := _rotaries(description):
            made.replace_module(name, lambda: rotary_tables(module, turning, made.regime_length))
    elif kind.endswith("Attention") and hasattr(module, "compute_bias") and hasattr(module, "relative_attention_bias"):
        made.replace_method(name, "compute_bias", bucket_bias(module, _buckets(module, description)))
    elif kind == "BloomModel":
        _replace_alibi(made, name, module)


def _rotaries(description: Description) -> dict[str, Rotary | MultimodalRotary]:
    """Give the scheme of each kind of layer that turns; one under "" where no kinds are told apart."""
    kinds = description.layer_types or ("",) * description.layers
    plans = {kind: plan for kind, plan in zip(kinds, description.query_key, strict=True) if plan is not None}
    built = {kind: plan.build() for kind, plan in plans.items()}
    return {kind: scheme for kind, scheme in built.items() if isinstance(scheme, Rotary | MultimodalRotary)}


def _buckets(attention: nn.Module, description: Description) -> T5:
    """Give T5's buckets of one attention module, to be used with its own table."""
    plan = next(plan for plan in description.score if plan is not None)
    bidirectional = not getattr(attention, "is_decoder", False)
    return T5(**{**plan.settings, "bidirectional": bidirectional}, device="meta")


def _replace_alibi(made: Patch, name: str, model: nn.Module) -> None:
    """Hand every block the bias of distances, made when the first of a call asks for it."""
    scheme = ALiBi(made.description.num_heads)
    call: dict[str, Any] = {}

    def begins(module: nn.Module, args: tuple[Any, ...], others: dict[str, Any]) -> None:
        names = ("input_ids", "past_key_values", "attention_mask", "inputs_embeds")
        given = {**dict(zip(names, args, strict=False)), **others}
        cache = given.get("past_key_values")
        call.clear()
        call.update(mask=given.get("attention_mask"), past=0 if cache is None else int(cache.get_seq_length()))

    def enters(module: nn.Module, args: tuple[Any, ...], others: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        hidden: Tensor = args[0] if args else others["hidden_states"]
        theirs: Tensor = others["alibi"]
        if "bias" not in call:
            sizes = {"tokens": hidden.shape[1], "keys": theirs.shape[-1], "past": call["past"]}
            call["bias"] = relative_alibi(scheme, call["mask"], **sizes, like=theirs)
        return args, {**others, "alibi": call["bias"]}

    made.before(name, begins)
    for path, _ in _blocks(name, model):
        made.before(path, enters)


def _blocks(name: str, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for own, module in model.named_modules(prefix=name):
        if type(module).__name__ == "BloomBlock":
            yield own, module


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
