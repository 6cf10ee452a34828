"""Replace the token table and positions of a loaded Hugging Face model by modules of this library, reversibly."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.huggingface import replacements
from whatwhere.huggingface.replacements import RotaryTables, normed, with_method
from whatwhere.kernels.deferred_logits import deferring_head
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.model_types import HEARING, MODEL_TYPES
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.inkling import Inkling
from whatwhere.where.score.t5 import T5

UNPATCHED = {
    "ctrl": "its sinusoids are an attribute of the model, beside a token table with another name",
    "dia_encoder": "its decoder, of codes of sound, is not read, and has the same kind of rotary module",
    "evolla": "its encoder of proteins has rotary modules of its own, which are not part of the text",
    "ibert": "its tables are quantized",
    "longt5": "its function of the bias takes other arguments than T5's",
    "mistral_large4_text": "the frequencies of its rotary module are weights, which a patch does not replace",
    "musicgen_decoder": "its token tables, one for each stream of codes, are a list, which is not replaced",
    "musicgen_melody_decoder": "its token tables, one for each stream of codes, are a list, which is not replaced",
    "t5_gemma_module": "its encoder and its decoder have configurations of their own",
    "xlnet": "its bias is computed from queries and a matrix of each layer inside its attention",
}
"""Model types that are read and not patched -> why."""
PATCHED = tuple(name for name in MODEL_TYPES if name not in UNPATCHED)  # the model types that `patch` supports

TOKENS = (
    "embed_in",
    "embed_tokens",
    "embeddings",
    "shared",
    "tok_embeddings",
    "tokens_embed",
    "word_embeddings",
    "wte",
)
POSITIONS = ("pos_emb", "position_embeddings", "positions_embed", "wpe")
OURS = (Learned, RotaryTables, TokenEmbedding)


class Patch:
    """What `patch` replaced in a model, by the names in `replaced`, and how to restore it."""

    def __init__(self, model: nn.Module, description: Description, regime_length: int | None = None) -> None:
        self.model, self.description, self.regime_length = model, description, regime_length
        self.replaced: list[str] = []
        self._restore: list[Callable[[], None]] = []
        self._placed: list[tuple[nn.Module, str, nn.Module]] = []
        self._replacements: dict[int, nn.Module] = {}

    def undo(self) -> None:
        """Restore the model's own modules, with the current parameters.

        Raises:
            SettingError: If something has replaced or wrapped a module of ours since, as an adapter of PEFT does: it
                would be lost. Nothing is restored then.
        """
        for parent, name, module in self._placed:
            # A resize by transformers may have put another module of the same type there.
            if type(now := getattr(parent, name)) is not type(module):
                raise SettingError(
                    f"{name} is {_article(type(now).__name__)} now, which replaces or wraps what this patch had put "
                    "there, and would be lost.\nRemove it first, as by merge_and_unload() of PEFT; or patch a model "
                    "after it is wrapped."
                )
        while self._restore:
            self._restore.pop()()
        self._placed.clear()
        self.replaced.clear()

    def __enter__(self) -> "Patch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"Patch({self.description.model_type}, replaced={self.replaced})"

    def replace_module(self, name: str, make: Callable[[], nn.Module]) -> None:
        """Replace a module by what `make` returns; one with several names by one module under all of them."""
        path, _, attribute = name.rpartition(".")
        parent = self.model.get_submodule(path)
        original = getattr(parent, attribute)
        if id(original) not in self._replacements:
            _require_bare(name, original)
            self._replacements[id(original)] = make()
        module = self._replacements[id(original)]
        setattr(parent, attribute, module)
        self._placed.append((parent, attribute, module))
        self._record(name, partial(_restore_module, self.model, parent, attribute, original, module))

    def replace_method(
        self,
        name: str,
        method: str,
        ours: Callable[..., Any],
        *,
        below: bool = False,
        renew: Callable[[], None] | None = None,
        **others: Any,
    ) -> None:
        """Replace a method of one module by a function, which reads the module's own parameters, and `others`.

        Args:
            below: whether the method is what the module's class calls by `super()`.
            renew: called now and after the method is restored, for what the module has made by it.
        """
        module = self.model.get_submodule(name)
        if hasattr(module, "replaced_method"):  # the module has another name too
            return
        kind = type(module)
        if method in vars(module):
            raise SettingError(
                f"{name} has a {method} of its own, which patch would replace.\nPatch first, then replace it by yours."
            )
        module.__class__ = with_method(kind, method, ours, below)
        vars(module).update(others)
        if renew is not None:
            renew()
        self._record(f"{name}.{method}", partial(_restore_method, module, kind, tuple(others), renew))

    def replace_attribute(self, name: str, attribute: str, value: Any) -> None:
        """Put a value before a buffer or property of one module; a tensor is not cast with the model."""
        module = self.model.get_submodule(name)
        vars(module)[attribute] = value
        self._record(f"{name}.{attribute}".lstrip("."), partial(_forget, module, attribute))

    def before(self, name: str, hook: Callable[..., Any]) -> None:
        """Call a function before a module, as `register_forward_pre_hook(..., with_kwargs=True)` does."""
        handle = self.model.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True)
        self._record(f"{name}()", handle.remove)

    def _record(self, name: str, restore: Callable[[], Any]) -> None:
        self.replaced.append(name)
        self._restore.append(restore)


def _restore_module(model: nn.Module, parent: nn.Module, name: str, original: Any, ours: nn.Module) -> None:
    if isinstance(ours, Learned | TokenEmbedding):
        original.weight = ours.weight  # a new parameter, if a state_dict was assigned meanwhile
    if isinstance(ours, TokenEmbedding):  # which transformers may have resized
        original.num_embeddings, original.padding_idx = ours.num_embeddings, ours.padding_idx
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    setattr(parent, name, original.train(ours.training).to(device))


def _restore_method(
    module: nn.Module, kind: type[nn.Module], names: tuple[str, ...], renew: Callable[[], None] | None
) -> None:
    module.__class__ = kind
    _forget(module, *names)
    if renew is not None:
        renew()


def _forget(module: nn.Module, *names: str) -> None:
    for name in names:
        vars(module).pop(name, None)


def patch(model: nn.Module, *, regime_length: int | None = None, linear_cross_entropy: bool = False) -> Patch:
    """Replace the token table and positions of a loaded Hugging Face model; its outputs stay the same.

    Token and position tables are replaced by TokenEmbedding and Learned with the same parameters, so state_dict, tied
    output projections and optimizers stay valid. Rotary modules, ALiBi and T5's buckets are replaced by those of this
    library; projections, norms, attention, and the parts for images and sound are not replaced.

    Cosines and sines are within 5e-8 of the formula at positions up to 1e8, and within 2e-7 up to 1e9, also after a
    cast of the model. If a cast has rounded the model's own frequencies, outputs change by that rounding error.

    Before a rotary module is replaced, its cosines and sines are compared with those of the configuration, for every
    layer type, at positions 1, 64, 4,095 and at twice the original length of a scaling.

    Args:
        model: of a type in `whatwhere.huggingface.patch.PATCHED`, with or without a head.
        regime_length: the length that DynamicNTK and LongRoPE assume. None is the maximum length of each call, to which
            keys in a KV cache are not adapted: set it for generation. (Dynamic frequencies of transformers also keep
            the maximum length of earlier calls until a call is shorter than the original length.)
        linear_cross_entropy: compute the loss of `labels=` as whatwhere.linear_cross_entropy does; logits are computed
            when they are first read, before the model is changed. Not under torch.compile.

    Returns:
        The patch; its `undo()` restores the model, as does the end of a `with` block.

    Raises:
        SettingError: If this is not a Hugging Face model, or is patched or sharded already; or a module does more than
            its replacement would: it has hooks, max_norm, or an overridden forward.
        CheckpointError: If the model type is not supported, or the model does not compute what its configuration
            states; for `linear_cross_entropy`, if it has no plain output projection or another loss than causal models.

    Examples:
        >>> from transformers import LlamaConfig, LlamaModel
        >>> model = LlamaModel(LlamaConfig(vocab_size=10, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...                                num_attention_heads=2))
        >>> with patch(model) as patched:
        ...     patched.replaced, type(model.embed_tokens).__name__
        (['embed_tokens', 'rotary_emb'], 'TokenEmbedding')
    """
    config = getattr(model, "config", None)
    if config is None:
        raise SettingError(
            f"patch needs a model of Hugging Face, which has a `config`, but got {_article(type(model).__name__)}.\n"
            "In a model of your own use the parts: from_huggingface(config).wheres()."
        )
    if regime_length is not None:
        require_whole("patch", regime_length=regime_length)
    description = from_huggingface(config)
    if description.model_type not in PATCHED:
        why = UNPATCHED.get(description.model_type, "transformers has no such type")
        raise CheckpointError(
            f"patch does not know {description.model_type!r}: {why}.\nIt knows: {', '.join(PATCHED)}."
        )
    if any(isinstance(module, OURS) or hasattr(module, "replaced_method") for module in model.modules()):
        raise SettingError(
            "this model is patched already: call undo() on its patch.\n"
            "Of a copy: copy both, model, patched = copy.deepcopy((model, patched)); likewise where a model is saved."
        )
    if any(hasattr(parameter, "placements") for parameter in model.parameters()):
        raise SettingError("this model is spread over processes, new modules are not.\nPatch it before fully_shard.")
    patched = Patch(model, description, regime_length)
    try:
        for name, module in _parts(model, description.model_type):
            _replace(patched, name, module)
        _require_positions(patched)
        if linear_cross_entropy:
            patched.replace_method(_causal_head(model), "forward", deferring_head, deferring=False)
            patched.replace_attribute("", "_loss_function", replacements.causal_loss)
            patched.before("", replacements.note_labels)
    except Exception:
        patched.undo()
        raise
    return patched


def _causal_head(model: Any) -> str:
    """Return the name of the output projection; CheckpointError unless the loss is that of causal models."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    loss = getattr(getattr(model, "loss_function", None), "__name__", None)
    paths: list[str] = [path for path, module in model.named_modules() if module is head]
    if not paths or type(head) is not nn.Linear or loss != "ForCausalLMLoss":
        raise CheckpointError(
            f"logits of {type(model).__name__} cannot be made in parts: {type(head).__name__} makes them, for {loss}.\n"
            "It needs nn.Linear and ForCausalLMLoss. Patch it without linear_cross_entropy=True."
        )
    return paths[0]


def _require_positions(patched: Patch) -> None:
    """Raise CheckpointError unless a part of the model was replaced, and positions if it has any."""
    description, name = patched.description, type(patched.model).__name__
    if not patched.replaced:
        raise CheckpointError(
            f"patch found no part of {description.model_type!r} in this {name}: under its config no module is called "
            f"{', '.join(TOKENS)}.\nPass the model of transformers itself."
        )
    for door, plans in (("bias", description.score), ("positions", (description.input, *description.query_key))):
        others = [each for each in patched.replaced if each.rpartition(".")[2] not in TOKENS]
        if any(plan is not None for plan in plans) and not others:
            raise CheckpointError(
                f"patch found no {door} of {description.model_type!r} in this {name} that it can replace.\n"
                "Load the model as transformers builds it, or leave its positions as they are."
            )


def _parts(model: nn.Module, model_type: str) -> list[tuple[str, nn.Module]]:
    """Return the modules of one model type, by name: those whose nearest enclosing config has this type."""
    types: dict[str, str | None] = {}
    parts = []
    for name, module in model.named_modules(remove_duplicate=False):
        config = getattr(module, "config", None)
        stated = config.get("model_type") if isinstance(config, Mapping) else getattr(config, "model_type", None)
        types[name] = stated or types.get(name.rpartition(".")[0])
        of_sound = model_type in HEARING and "encoder" in name.split(".")
        if types[name] == model_type and not of_sound:
            parts.append((name, module))
    return parts


def _replace(patched: Patch, name: str, module: nn.Module) -> None:
    """Replace a module if it is a token table, or computes positions."""
    attribute, kind, description = name.rpartition(".")[2], type(module).__name__, patched.description
    learned = description.input is not None and description.input.scheme == "learned"
    if isinstance(module, nn.Embedding) and attribute in TOKENS:
        _require_lookup(name, module)
        patched.replace_module(
            name, lambda: replacements.token_table(module, description.embedding_scale, _scales(module))
        )
    elif isinstance(module, nn.Embedding) and attribute in POSITIONS and learned:
        _require_lookup(name, module)
        patched.replace_module(name, lambda: replacements.position_table(module))
    elif kind.endswith("RotaryEmbedding"):
        if schemes := _rotaries(description, module):
            patched.replace_module(name, lambda: replacements.rotary_tables(module, schemes, patched.regime_length))
    elif kind.endswith("Attention") and hasattr(module, "compute_bias") and hasattr(module, "relative_attention_bias"):
        patched.replace_method(name, "compute_bias", replacements.bucket_bias, scheme=_buckets(module, description))
    elif kind.endswith("Attention") and getattr(module, "has_relative_attention_bias", None) is False:
        if "position_bias" in signature(module.forward).parameters:  # UMT5 always makes a table of zeros
            patched.before(name, replacements.without_bias)
    elif kind.endswith("RelativeLogits"):
        attention: Any = patched.model.get_submodule(name.rpartition(".")[0])
        features, extent = module.get_parameter("proj").shape
        profiles = Inkling(features, attention.num_heads, features, extent, device="meta")
        patched.replace_method(name, "forward", replacements.profile_bias, scheme=profiles)
    elif kind == "DisentangledSelfAttention" and description.score[0] is not None:
        method = "disentangled_att_bias" if hasattr(module, "in_proj") else "disentangled_attention_bias"
        patched.replace_method(name, method, replacements.disentangled_bias, scheme=description.score[0].build("meta"))
    elif kind == "BloomBlock":
        patched.before(name, partial(replacements.alibi_by_distance, ALiBi(description.num_heads)))
    elif kind == "MptModel":
        alibi = ALiBi(description.num_heads)
        patched.replace_method(name, "build_mpt_alibi_tensor", replacements.last_row_of_alibi, scheme=alibi)
    elif kind == "MPNetEncoder":
        buckets = _buckets(module, description)
        patched.replace_method(name, "compute_position_bias", replacements.bucket_bias_of_ids, scheme=buckets)
    else:
        _replace_table(patched, name, module)


def _replace_table(patched: Patch, name: str, module: Any) -> None:
    """Replace a table of positions that is not a plain nn.Embedding, if this module is one."""
    kind, description = type(module).__name__, patched.description
    buffers = dict(module.named_buffers(recurse=False))
    if isinstance(module, nn.Embedding) and type(module) is not nn.Embedding:
        if kind.endswith("LearnedPositionalEmbedding") and description.input is not None:
            patched.replace_method(name, "forward", replacements.learned_rows, below=True)
        elif kind.endswith("WhisperPositionalEmbedding") and description.input is not None:
            patched.replace_method(name, "forward", replacements.learned_rows_of_slots)
        elif kind.endswith("SinusoidalPositionalEmbedding"):
            scheme, weight = Sinusoidal(module.embedding_dim, layout="half"), module.weight.detach()
            if not weight.is_meta:
                replacements.require_near(
                    kind, weight, scheme(torch.arange(len(weight), device=weight.device)[None])[0]
                )
            patched.replace_method(name, "forward", replacements.sinusoidal_rows, below=True, scheme=scheme)
    elif kind.endswith("SinusoidalPositionalEmbedding") and "weights" in buffers:
        sizes = (*module.weights.shape, module.padding_idx)
        replacements.require_near(
            kind, module.weights, replacements.fairseq_rows(None, *sizes).to(module.weights.device)
        )
        renew = partial(_make_weights, module, sizes)
        patched.replace_method(name, "get_embedding", replacements.fairseq_rows, renew=renew)
    elif kind == "PegasusXSinusoidalPositionalEmbedding":
        scheme = Sinusoidal(description.dim, layout="tensor2tensor")
        patched.replace_method(name, "forward", replacements.sinusoids_of_slots, scheme=scheme)
    elif "embed_positions" in buffers:
        rotary = next((plan.build() for plan in description.query_key if plan is not None), None)
        if isinstance(rotary, Rotary):
            patched.replace_attribute(name, "embed_positions", replacements.rotary_rows(module, rotary))


def _make_weights(module: Any, sizes: tuple[Any, ...]) -> None:
    module.make_weights(*sizes)


def _require_bare(name: str, module: nn.Module) -> None:
    """Raise SettingError if a module has hooks, or an overridden forward, that its replacement would not have."""
    hooks = [kind for kind, hooks in vars(module).items() if kind.endswith("_hooks") and hooks]
    if hooks or "forward" in vars(module):
        extra = f"hooks ({', '.join(hooks)})" if hooks else "a forward of its own, as accelerate makes one"
        raise SettingError(
            f"{name} has {extra}, which would be lost with the module that patch replaces.\n"
            f"Remove it, patch, and add it to the new {name}."
        )


def _require_lookup(name: str, module: nn.Embedding) -> None:
    """Raise SettingError unless a table only looks up rows, and scales them if transformers does."""
    options = ("max_norm", "scale_grad_by_freq", "sparse")
    option = next((option for option in options if getattr(module, option) not in (None, False)), None)
    weight = module.weight
    if option is not None:
        problem = f"has {option}={getattr(module, option)}"
    elif type(module).forward is not nn.Embedding.forward and not _scales(module) and not normed(module):
        problem = f"is {_article(type(module).__name__)}, which has a forward of its own"
    elif type(weight) is not nn.Parameter or type(weight.data) is not Tensor or not weight.is_floating_point():
        problem = f"has a weight that is not a plain floating-point parameter, but {type(weight.data).__name__}"
    else:
        return
    raise SettingError(
        f"{name} {problem}: patch would change what it computes.\nPut a plain nn.Embedding in its place."
    )


def _scales(module: nn.Embedding) -> bool:
    """Return whether a table is of a class in transformers that scales its rows."""
    kind = type(module)
    return kind.__module__.startswith("transformers.") and "Scaled" in kind.__name__


def _rotaries(description: Description, module: nn.Module) -> dict[str, Rotary | MultimodalRotary]:
    """Return the scheme of each layer type that rotates; one under "" if layers have no types."""
    plans_of_all = {plan for plan in map(repr, description.query_key) if plan != "None"}
    if description.layer_types is None and len(plans_of_all) > 1:  # a module for each theta: Granite with windows
        stated = getattr(getattr(module, "config", None), "rope_parameters", {}).get("rope_theta")
        all_built = [plan.build() for plan in description.query_key if plan is not None]
        found = [one for one in all_built if isinstance(one, Rotary) and one.theta == stated]
        return {"": found[0]} if found else {}
    types = description.layer_types or ("",) * description.layers
    plans = {name: plan for name, plan in zip(types, description.query_key, strict=True) if plan is not None}
    built = {name: plan.build() for name, plan in plans.items()}
    return {name: scheme for name, scheme in built.items() if isinstance(scheme, Rotary | MultimodalRotary)}


def _buckets(attention: nn.Module, description: Description) -> T5:
    """Return T5's buckets of one attention module, for use with its own table."""
    plan = next(plan for plan in description.score if plan is not None)
    decodes = getattr(attention, "is_decoder", None)  # which attention of one part does not have
    bidirectional = plan.settings["bidirectional"] if decodes is None else not decodes
    buckets = replace(plan, settings={**plan.settings, "bidirectional": bidirectional}).build("meta")
    assert isinstance(buckets, T5)
    return buckets


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
