"""Description of the tokens and positions of a model, as data; building a scheme from it imports PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from whatwhere.errors import SettingError
from whatwhere.where.window import Window

if TYPE_CHECKING:
    import torch

    from whatwhere.where.base import InputEncoding
    from whatwhere.where.binding import Where
    from whatwhere.where.input_layer import InputLayer

CLASSES: Mapping[str, str] = {
    "alibi": "score.alibi.ALiBi",
    "deberta": "score.deberta.DeBERTa",
    "inkling": "score.inkling.Inkling",
    "learned": "input.learned.Learned",
    "rotary": "query_key.rotary.Rotary",
    "rotary-dynamic-ntk": "scaling.rules.DynamicNTK",
    "rotary-learned": "query_key.learned_rotary.LearnedRotary",
    "rotary-linear": "scaling.rules.Linear",
    "rotary-llama3": "scaling.rules.Llama3",
    "rotary-longrope": "scaling.longrope.LongRoPE",
    "rotary-multimodal": "query_key.multimodal_rotary.MultimodalRotary",
    "rotary-ntk": "scaling.rules.NTK",
    "rotary-proportional": "scaling.rules.Proportional",
    "rotary-yarn": "scaling.yarn.YaRN",
    "ssmax": "query_key.query_factor.SSMax",
    "sinusoidal": "input.sinusoidal.Sinusoidal",
    "t5": "score.t5.T5",
    "temperature": "query_key.query_factor.QueryTemperature",
    "transformer-xl": "score.transformer_xl.TransformerXL",
}
"""Name in the catalogue -> class below `whatwhere.where`: of the scheme, or of the scaling of rotary positions."""

CURVES: Mapping[str, str] = {
    "clamped": "temperature.ClampedLog",
    "logn": "temperature.LogN",
    "power": "temperature.Power",
    "stepped": "temperature.SteppedLog",
}
"""The same of the curves of the query temperature."""


def class_of(name: str) -> type:
    """Return the class of a scheme, a RoPE scaling or a curve; this imports PyTorch."""
    module, _, class_name = {**CLASSES, **CURVES}[name].rpartition(".")
    loaded: type = getattr(import_module(f"whatwhere.where.{module}"), class_name)
    return loaded


@dataclass(frozen=True)
class Plan:
    """A scheme, RoPE scaling or curve that is not built yet. Reading a configuration allocates no tables.

    Examples:
        >>> plan = Plan("rotary", {"head_dim": 64, "scaling": Plan("rotary-linear", {"factor": 4.0})})
        >>> plan, plan.name
        (Rotary(head_dim=64, scaling=Linear(factor=4.0)), 'rotary-linear')
        >>> plan.build().theta
        10000.0
    """

    scheme: str  # its name in CLASSES or CURVES, such as `rotary`, `rotary-yarn` or `stepped`
    # Keyword arguments of its constructor; `scaling` and the `temperature` of Inkling's bias are a Plan or None.
    settings: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = True  # whether all layers with this plan share one module, as in T5, or have one each

    @property
    def name(self) -> str:
        """The name of its entry in the catalogue, such as `rotary-yarn` for rotary positions with YaRN."""
        return self.scaling.scheme if self.scheme == "rotary" and self.scaling is not None else self.scheme

    @property
    def scaling(self) -> "Plan | None":
        """The scaling of rotary positions; None where there is none."""
        return self.settings.get("scaling")

    @property
    def is_curve(self) -> bool:
        """Whether it is a function of the position, by which queries are multiplied, rather than a scheme."""
        return self.scheme in CURVES

    @property
    def rotary_dim(self) -> int:
        """The features of a head that are rotated; all of them where the plan does not name a number."""
        part: int | None = self.settings.get("rotary_dim")
        return int(self.settings["head_dim"]) if part is None else part

    @property
    def class_name(self) -> str:
        """The name of its class, such as `Rotary`."""
        return {**CLASSES, **CURVES}.get(self.scheme, self.scheme).rpartition(".")[2]

    def build(
        self, device: "torch.device | str | None" = None, dtype: "torch.dtype | None" = None, then: object = None
    ) -> Any:
        """Build it; learned tables have random initial values, and a query temperature is around the map `then`."""
        settings = {name: value.build() if isinstance(value, Plan) else value for name, value in self.settings.items()}
        if then is not None:
            settings["then"] = then
        scheme = class_of(self.scheme)
        if "device" in signature(scheme).parameters:  # it has learned tables
            settings |= {"device": device, "dtype": dtype}
        return scheme(**settings)

    def with_settings(self, **settings: Any) -> "Plan":
        """Return a plan with some settings replaced or added."""
        return Plan(self.scheme, {**self.settings, **settings}, self.shared)

    def __repr__(self) -> str:
        return f"{self.class_name}({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


EmbeddingScale = float | Literal["sqrt_dim", "sqrt_dim_rounded"]


@dataclass(frozen=True)
class Heads:
    """The attention heads of one layer."""

    num_heads: int  # of queries
    key_heads: int  # of keys and values
    head_dim: int  # features of the dot product of a query and a key; the number that is rotated is in the plan


@dataclass(frozen=True)
class Description:
    """The tokens and positions of a model, as its configuration determines them."""

    model_type: str  # Hugging Face's name of the model
    part: str | None  # `decoder` or `encoder` of a model that has both
    vocab_size: int  # rows of the token table
    dim: int  # features of a hidden state
    token_dim: int  # features of a row of the token table; not dim if a projection follows (ALBERT, small ELECTRA)
    heads: tuple[Heads, ...]  # of each layer; if all are alike, also as num_heads, key_heads and head_dim
    layers: int
    input: Plan | None = None  # of the encoding that is added to token vectors
    query_key: tuple[Plan | None, ...] = ()  # of the map of queries and keys of each layer
    score: tuple[Plan | None, ...] = ()  # of the bias of attention scores of each layer
    scales: tuple[float, ...] = ()  # softmax scale of each layer
    embedding_scale: EmbeddingScale | None = None  # factor of the token vectors
    tied: bool = True  # whether the output projection (`lm_head`) is the token table
    padding_idx: int | None = None  # id of the padding token
    max_length: int | None = None  # number of positions that the configuration names
    layer_types: tuple[str, ...] | None = None  # of each layer, if that affects positions
    windows: tuple[Window | None, ...] = ()  # of each layer; None if it attends to all tokens
    sinks: tuple[bool, ...] = ()  # whether heads of a layer have a learned logit in the softmax; empty if none has
    # Curve by which queries of a layer are multiplied, after `query_key`, or SSMax, whose factors are weights.
    temperatures: tuple[Plan | None, ...] = ()
    segments: int = 0  # rows of a table of segments (token types) that is added too, as in BERT
    rotary_part: int | None = None  # features that latent attention keeps apart for rotary positions, even without any
    output_dim: int | None = None  # features of the output projection; None if they are token_dim
    extra_rows: int = 0  # of the token table beyond those of the output projection, as one for the start (Moshi)
    causal: bool = True
    notes: tuple[str, ...] = ()  # other parts of the model, which are not built, such as norms and tables of segments
    used: tuple[str, ...] = field(default=(), compare=False)  # the keys that were read
    assumed: tuple[str, ...] = field(default=(), compare=False)  # defaults of transformers for keys that are absent

    @property
    def num_heads(self) -> int:
        """The number of heads of queries, if it is the same in all layers; SettingError where they differ."""
        return self._of_all_layers("num_heads", "numbers of heads")

    @property
    def key_heads(self) -> int:
        """The number of heads of keys and values, if it is the same in all layers; SettingError where they differ."""
        return self._of_all_layers("key_heads", "numbers of key heads")

    @property
    def head_dim(self) -> int:
        """The features of a head, if all layers have as many; SettingError where they differ."""
        return self._of_all_layers("head_dim", "sizes of heads")

    def _of_all_layers(self, name: str, words: str) -> int:
        self.require_attention()
        sizes = {getattr(heads, name) for heads in self.heads}
        if len(sizes) != 1:
            raise SettingError(
                f"the layers of this {self.model_type!r} have different {words}, {', '.join(map(str, sorted(sizes)))}: "
                f"see `heads[layer].{name}`."
            )
        size: int = sizes.pop()
        return size

    def require_attention(self) -> None:
        """Raise SettingError if no layer has attention, as in Mamba."""
        if not self.heads:
            raise SettingError(
                f"no layer of this {self.model_type!r} has attention, so it has no heads, and no queries or\nkeys to "
                "which positions could be given. Of its input it has the tokens alone: input_layer()."
            )

    @property
    def scale(self) -> float:
        """The softmax scale, if it is the same in all layers; SettingError where they differ."""
        self.require_attention()
        if len(set(self.scales)) != 1:
            raise SettingError(f"the layers have different softmax scales, {self.scales}: see `scales`.")
        return self.scales[0]

    @property
    def position_offset(self) -> int:
        """The row of position 0 in the position table: 2 in OPT and RoBERTa."""
        return 0 if self.input is None else int(self.input.settings.get("offset", 0))

    def wheres(self, device: "torch.device | str | None" = None, dtype: "torch.dtype | None" = None) -> "list[Where]":
        """Build one Where for each layer, with its window and its sinks.

        The first one has the input encoding, if there is any, because positions are added once. Layers that share a
        scheme have the same instance, so that `whatwhere.bind` binds it once. Learned tables have random initial
        values, and sinks are 0.

        Raises:
            SettingError: If no layer has attention.

        Examples:
            >>> from whatwhere import bind, from_huggingface, positions
            >>> config = {"model_type": "qwen2", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
            ...           "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1_000_000.0}
            >>> wheres = from_huggingface(config).wheres()
            >>> wheres[0].query_key is wheres[1].query_key, len(bind(wheres, positions(8)))
            (True, 2)
        """
        encoding = None if self.input is None else self.input.build(device, dtype)
        built: list[tuple[Plan, object, Any]] = []
        return [
            self.where(layer, encoding if layer == 0 else None, device, dtype, built) for layer in range(self.layers)
        ]

    def where(
        self,
        layer: int,
        encoding: "InputEncoding | None" = None,
        device: "torch.device | str | None" = None,
        dtype: "torch.dtype | None" = None,
        built: list[tuple[Plan, object, Any]] | None = None,
    ) -> "Where":
        """Build the Where of one layer, with this encoding of its input.

        `built` holds plans of other layers, the maps that they are around, and the modules: it is shared and added to.
        """
        from whatwhere.where.attention import Sink
        from whatwhere.where.binding import Where

        self.require_attention()
        built = [] if built is None else built

        def build(plan: Plan | None, then: object = None) -> Any:
            if plan is None:
                return then
            found = next((one for other, inner, one in built if inner is then and other == plan), None)
            if found is None or not plan.shared:
                found = plan.build(device, dtype, then)
                built.append((plan, then, found))
            return found

        heads, curve = self.heads[layer], self.temperatures[layer] if self.temperatures else None
        if curve is not None and curve.is_curve:
            curve = Plan("temperature", {"head_dim": heads.head_dim, "curve": curve})
        query_key, score = build(curve, build(self.query_key[layer])), build(self.score[layer])
        scale: float | None = self.scales[layer]
        if scale == heads.head_dim**-0.5 or scale in (getattr(query_key, "scale", None), getattr(score, "scale", None)):
            scale = None  # that is what attention and the scheme divide by without it
        return Where(
            input=encoding,
            query_key=query_key,
            score=score,
            scale=scale,
            window=self.windows[layer] if self.windows else None,
            sink=Sink(heads.num_heads, device=device, dtype=dtype) if self.sinks and self.sinks[layer] else None,
        )

    def input_layer(
        self,
        where: "Where | None" = None,
        device: "torch.device | str | None" = None,
        dtype: "torch.dtype | None" = None,
    ) -> "InputLayer":
        """Build the token table and the encoding that is added to it, with random initial values.

        Args:
            where: the first of `wheres()`, whose input encoding is used; None builds a new one.

        Raises:
            SettingError: If a projection follows the token table, before positions are added.

        Examples:
            >>> import torch
            >>> from whatwhere import from_huggingface
            >>> config = {"model_type": "gpt2", "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4}
            >>> from_huggingface(config).input_layer()(torch.tensor([[4, 2, 7]])).shape
            torch.Size([1, 3, 32])
        """
        from whatwhere.where.input_layer import InputLayer

        if self.input is not None and self.input.settings.get("dim") != self.token_dim:
            raise SettingError(
                f"a projection from {self.token_dim} to {self.input.settings.get('dim')} features is between the "
                "token table and the positions of this model, which InputLayer does not have.\n"
                "Use its parts: TokenEmbedding(vocab_size, token_dim), your projection, then wheres()[0].input."
            )
        encoding = where.input if where is not None else None if self.input is None else self.input.build(device, dtype)
        return InputLayer(
            self.vocab_size,
            self.token_dim,
            encoding,
            scale=self.embedding_scale,
            padding_idx=self.padding_idx,
            device=device,
            dtype=dtype,
        )
