"""A decoder-only Transformer of whatwhere's parts, and the ModelSpec with which torchtitan (0.3.0) trains it.

    token ids -> TokenEmbedding -> blocks, each with a Where of the scheme -> logits of the next token

Run it: python examples/torchtitan_model.py [--scheme fire]. It builds the model and prints the size and the loss of one
batch, without torchtitan. For torchtitan, put `model_spec(ModelArguments(...))` into the
Trainer.Config that a function of a module of yours returns, and name both:
torchrun --nproc-per-node 8 -m torchtitan.train --module my_module --config my_function.
"""

import argparse
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

import whatwhere as ww


@dataclass
class ModelArguments:
    """The sizes of the model, and the scheme of its positions, by its name in the catalogue."""

    vocab_size: int = 2048
    dim: int = 256
    layers: int = 6
    heads: int = 8
    max_length: int = 2048
    scheme: str = "rotary"


class Block(nn.Module):
    """Attention by the scheme, and a feed-forward part. The first block adds the positions of input schemes, too."""

    def __init__(self, sizes: ModelArguments, first: bool) -> None:
        super().__init__()
        where = ww.scheme(sizes.scheme, dim=sizes.dim, num_heads=sizes.heads, max_length=sizes.max_length)
        self.where = where if first else without_input(where)
        self.first, self.heads = first, sizes.heads
        self.qkv, self.out = (nn.Linear(sizes.dim, n * sizes.dim, bias=False) for n in (3, 1))
        self.up, self.down = nn.Linear(sizes.dim, 4 * sizes.dim), nn.Linear(4 * sizes.dim, sizes.dim)
        self.norm_attention, self.norm_feed = nn.RMSNorm(sizes.dim), nn.RMSNorm(sizes.dim)

    def forward(self, x: Tensor, positions: ww.Positions) -> Tensor:
        """Bind the positions within the block, where fully_shard has gathered the parameters of its scheme."""
        here = self.where.at(positions)
        x = here.input(x) if self.first else x
        q, k, v = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(here(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm_feed(x))))


class Decoder(nn.Module):
    """The model itself, which needs nothing of torchtitan."""

    def __init__(self, sizes: ModelArguments) -> None:
        super().__init__()
        self.tokens = ww.TokenEmbedding(sizes.vocab_size, sizes.dim)
        self.layers = nn.ModuleDict({str(n): Block(sizes, first=n == 0) for n in range(sizes.layers)})
        self.norm, self.output = nn.RMSNorm(sizes.dim), nn.Linear(sizes.dim, sizes.vocab_size, bias=False)

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Compute logits. Position ids, as of torchtitan's loader, begin again where another document begins."""
        where = ww.positions(ids.shape[1]) if positions is None else ww.Positions.from_position_ids(positions)
        x = self.tokens(ids)
        for block in self.layers.values():
            x = block(x, where)
        return self.output(self.norm(x))

    def init_states(self, *, buffer_device: torch.device | None = None) -> None:
        """Draw all parameters, after torchtitan has moved the model from the meta device."""
        for module in self.modules():
            if isinstance(module, ww.TokenEmbedding | ww.Where | nn.Linear | nn.RMSNorm):
                module.reset_parameters()


def without_input(where: ww.Where) -> ww.Where:
    """Return the parts of a Where that act within attention."""
    where.input = None
    return where


def parallelize(
    model: Any,
    *,
    parallel_dims: Any,
    training: Any,
    parallelism: Any,
    compile_config: Any,
    ac_config: Any,
    dump_folder: str,
) -> Any:
    """Shard the table, each block and the rest by fully_shard; refuse what this example does not do."""
    unset = parallelism.spmd_backend == "partial_dtensor" and not compile_config.enable and ac_config is None
    if not unset or parallel_dims.tp_enabled or parallel_dims.cp_enabled:
        needed = "spmd_backend partial_dtensor, tensor and context 1, no compile, activation_checkpoint None"
        raise NotImplementedError(f"this example shards by fully_shard alone; set {needed}")
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    policy = MixedPrecisionPolicy(types[training.mixed_precision_param], types[training.mixed_precision_reduce])
    mesh = parallel_dims.get_mesh(["dp_replicate", "fsdp"] if parallel_dims.dp_replicate_enabled else ["fsdp"])
    for unit in (model.tokens, *model.layers.values(), model):
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    return model


def model_spec(sizes: ModelArguments, flavor: str = "example") -> Any:
    """Return the ModelSpec of torchtitan 0.3.0, which its Trainer.Config takes."""
    from torchtitan.protocols import BaseModel, ModelSpec

    class TitanDecoder(Decoder, BaseModel):
        @dataclass(kw_only=True, slots=True)
        class Config(BaseModel.Config):
            sizes: ModelArguments = field(default_factory=ModelArguments)

            def update_from_config(self, *, config: Any, **_: Any) -> None:
                if config.training.seq_len > self.sizes.max_length:
                    raise ValueError(f"seq_len {config.training.seq_len} is over max_length {self.sizes.max_length}")

            def get_nparams_and_flops(self, model: nn.Module, seq_len: int) -> tuple[int, int]:
                total = sum(weight.numel() for weight in model.parameters())
                table = self.sizes.vocab_size * self.sizes.dim
                return total, 6 * (total - table) + 6 * self.sizes.layers * self.sizes.dim * seq_len  # causal

        def __init__(self, config: Config) -> None:
            Decoder.__init__(self, config.sizes)

        init_states = Decoder.init_states

        def verify_module_protocol(self) -> None:
            """Its modules are PyTorch's and whatwhere's, which Decoder.init_states knows."""

    spec = {"parallelize_fn": parallelize, "pipelining_fn": None, "post_optimizer_build_fn": None}
    return ModelSpec(
        name="whatwhere", flavor=flavor, model=TitanDecoder.Config(sizes=sizes), state_dict_adapter=None, **spec
    )


def main(scheme: str = "rotary") -> float:
    """Build a model on the CPU and print its size and the loss of random tokens."""
    sizes = ModelArguments(scheme=scheme, dim=64, layers=2, heads=4, max_length=64)
    model, ids = Decoder(sizes), torch.randint(sizes.vocab_size, (2, 33))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).item()
    print(f"{scheme}: {sum(weight.numel() for weight in model.parameters()):,} parameters, loss {loss:.2f}")
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", default="rotary", help="a scheme of the catalogue")
    main(parser.parse_args().scheme)
