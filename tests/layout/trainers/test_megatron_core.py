"""Names and shapes of megatron-core's own modules, made on a CPU for one process of a larger world."""

from __future__ import annotations

import itertools
import warnings
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest
import torch

from deltastore.layout.laid_parts import parts_of
from deltastore.layout.trainers.megatron import megatron
from deltastore.layout.trainers.transformers import transformers

from .megatron_bridge import World
from .small import CONFIGS
from .test_transformers import built as built_by_transformers

WORLDS = [
    World(1),
    World(8),
    World(2, 2),
    World(2, 4, 2, 2),
    World(4, 2, 8, 1),
    World(1, 1, 2, 4),
    World(2, 2, 4, vpp=2),
]


def module(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries for GPUs that are not there
        return import_module(f"megatron.core.{name}")


class Group:
    """Ranks that there are not."""

    def __init__(self, size: int = 1, rank: int = 0) -> None:
        self._size, self._rank = size, rank

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank


class Nothing(torch.nn.Module):
    """In the place of an attention kernel, which has no parameters."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are made as if there were GPUs and other processes."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", Nothing)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    language = module("models.gpt").GPTModel
    monkeypatch.setattr(language, "setup_embeddings_and_output_layer", lambda _: None)
    latent = module("transformer.multi_latent_attention")
    monkeypatch.setattr(latent, "HAVE_TE", False)
    monkeypatch.setattr(latent, "TELinear", Nothing)


def settings(config: dict[str, Any], at: dict[str, int]) -> Any:
    """The configuration as Megatron has it."""
    latent = "kv_lora_rank" in config
    sparse = config.get("first_k_dense_replace", 0), config.get("mlp_only_layers", ())
    layers = range(config["num_hidden_layers"])
    experts = config.get("num_experts") or config.get("n_routed_experts")
    fields: dict[str, Any] = {
        "num_layers": len(layers),
        "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"],
        "ffn_hidden_size": config["intermediate_size"],
        "add_bias_linear": False,
        "add_qkv_bias": config["architectures"] == ["Qwen2ForCausalLM"],
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "normalization": "RMSNorm",
        "qk_layernorm": "Qwen3" in config["architectures"][0] or latent,
        "use_cpu_initialization": True,
        "bias_activation_fusion": False,
        "bias_dropout_fusion": False,
        "masked_softmax_fusion": False,
        "gradient_accumulation_fusion": False,
        "apply_rope_fusion": False,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "layernorm_epsilon": 1e-6,
        "tensor_model_parallel_size": at["tp"],
        "pipeline_model_parallel_size": at["pp"],
        "virtual_pipeline_model_parallel_size": at["vpp"] if at["vpp"] > 1 else None,
        "pipeline_dtype": torch.bfloat16,
        "params_dtype": torch.bfloat16,
    }
    if experts:
        shared = config.get("n_shared_experts", 0) * config["moe_intermediate_size"]
        fields |= {
            "num_moe_experts": experts,
            "moe_ffn_hidden_size": config["moe_intermediate_size"],
            "moe_layer_freq": [int(number >= sparse[0] and number not in sparse[1]) for number in layers],
            "moe_router_enable_expert_bias": latent,
            "moe_router_score_function": "sigmoid" if latent else "softmax",
            "moe_shared_expert_intermediate_size": shared or None,
            "moe_router_topk": 2,
            "moe_router_load_balancing_type": "none",
            "expert_model_parallel_size": at["ep"],
            "expert_tensor_parallel_size": at["etp"],
        }
    transformer = module("transformer.transformer_config")
    if not latent:
        fields |= {"num_query_groups": config["num_key_value_heads"], "kv_channels": config["head_dim"]}
        return transformer.TransformerConfig(**fields)
    return transformer.MLATransformerConfig(
        **fields,
        q_lora_rank=config["q_lora_rank"],
        kv_lora_rank=config["kv_lora_rank"],
        qk_head_dim=config["qk_nope_head_dim"],
        qk_pos_emb_head_dim=config["qk_rope_head_dim"],
        v_head_dim=config["v_head_dim"],
        rope_type="rope",
    )


def built(
    config: dict[str, Any], at: dict[str, int], chunk: int, multiple: int, *, computes: bool = False
) -> torch.nn.Module:
    """One model chunk of one process; one that ``computes`` has attention kernels and FP32 weights."""
    made = settings(config, at)
    if computes:
        made.params_dtype = torch.float32
    specs = module("models.gpt.gpt_layer_specs").get_gpt_decoder_block_spec(
        made,
        use_transformer_engine=False,
        normalization="RMSNorm",
        pp_rank=at["pp_rank"],
        vp_stage=chunk if at["vpp"] > 1 else None,
    )
    for spec in () if computes else specs.layer_specs:
        spec.submodules.self_attention.submodules.core_attention = Nothing
    one, tensors = Group(), Group(at["tp"], at["tp_rank"])
    groups = module("process_groups_config").ProcessGroupCollection(
        tp=tensors,
        pp=Group(at["pp"], at["pp_rank"]),
        ep=Group(at["ep"], at["ep_rank"]),
        expt_tp=Group(at["etp"], at["etp_rank"]),
        tp_ep=Group(at["ep"] * at["etp"]),
        tp_cp=tensors,
        tp_dp_cp=tensors,
        **dict.fromkeys(("cp", "dp", "dp_cp", "expt_dp", "embd", "pos_embd", "mp"), one),
    )
    step = multiple * at["tp"]
    gpt: torch.nn.Module = module("models.gpt").GPTModel(
        config=made,
        transformer_layer_spec=specs,
        vocab_size=-(-config["vocab_size"] // step) * step,
        max_sequence_length=8,
        share_embeddings_and_output_weights=config.get("tie_word_embeddings", False),
        position_embedding_type="rope" if computes else "none",
        pg_collection=groups,
        pre_process=at["pp_rank"] == chunk == 0,
        post_process=(at["pp_rank"], chunk) == (at["pp"] - 1, at["vpp"] - 1),
        vp_stage=chunk if at["vpp"] > 1 else None,
    )
    return gpt


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "qwen2-tied", "qwen3-moe", "deepseek"])
def test_the_layout_has_the_modules_own_parameters(name: str) -> None:
    config = CONFIGS[name]
    for world, at in [(one, at) for one in WORLDS for at in one.ranks()]:
        for chunk in range(world.vpp):
            held = built(config, at, chunk, 16)
            due = {
                key: tuple(tensor.shape)
                for key, tensor in itertools.chain(held.named_parameters(), held.named_buffers())
                if not key.endswith("tokens_per_expert")
            }
            layout = megatron(
                config,
                **at,
                vpp_rank=chunk,
                experts="sequential",
                implementation="local",
                vocab_multiple=16,
            )
            assert {param.name: param.shape for param in layout.params} == due, (world, at)


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["qwen3", "qwen3-moe"])
def test_both_libraries_compute_the_same_with_the_same_tensors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So heads, groups, gates and experts are where Megatron takes them from."""
    monkeypatch.setattr(
        module("tensor_parallel.random").CudaRNGStatesTracker, "fork", lambda _: nullcontext()
    )
    state = module("parallel_state")
    monkeypatch.setattr(state, "_GLOBAL_MEMORY_BUFFER", module("utils").GlobalMemoryBuffer())
    monkeypatch.setattr(module("transformer.moe.moe_utils"), "te_general_gemm", None, raising=False)
    config = {**CONFIGS[name], "attention_bias": False, "dtype": "float32", "norm_topk_prob": True}
    first = built_by_transformers(
        name, attention_bias=False, norm_topk_prob=True, initializer_range=0.3
    ).eval()
    (at,) = World().ranks()
    second = built(config, at, 0, 16, computes=True).eval()
    layout = megatron(config, experts="sequential", implementation="local", vocab_multiple=16)
    given = parts_of(transformers(config), dict(first.named_parameters()))
    taken = parts_of(layout, dict(second.named_parameters()))
    tokens = torch.arange(9)[None] * 7 % config["vocab_size"]
    ahead = torch.triu(torch.ones(1, 1, 9, 9, dtype=torch.bool), 1)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for tensor, parts in taken.items():
            for part in parts:
                box = tuple(slice(at, at + n) for at, n in zip(part.start, part.tensor.shape, strict=True))
                part.tensor.copy_(given[tensor][0].tensor[box])
        due = first(input_ids=tokens).logits
        got = second(tokens, torch.arange(9)[None], ahead)[..., : config["vocab_size"]]
    assert float(due.abs().max()) > 0.5
    assert float((got - due).abs().max()) < 1e-4
