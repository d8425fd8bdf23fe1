"""Megatron-core's layouts against a conversion that fuses and cuts whole tensors of unique ids."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.layout.families import model_of
from deltastore.layout.model import Model
from deltastore.layout.planning import check_world
from deltastore.layout.trainers.megatron import megatron
from tests.layout.reassembling import unique_ids

from .megatron_bridge import World, convert
from .small import CONFIGS, Ids, add_published, filled

DENSE = [World(tp, pp) for tp, pp in itertools.product((1, 2, 4, 8), (1, 2, 4))]
SPARSE = [
    World(tp, pp, ep, etp)
    for tp, (pp, ep, etp) in itertools.product(
        (1, 2, 4, 8),
        ((1, 1, 1), (1, 1, 4), (1, 4, 2), (1, 8, 1), (2, 1, 8), (4, 2, 2)),
    )
]
SPECIAL = [
    World(2, 2, 2, vpp=2),
    World(1, 1, 4, copies=2),
    World(4, 2, 2, 2, copies=2),
    World(2, 4, copies=3),
]


def cases() -> list[tuple[str, World]]:
    dense = [(name, world) for name in ("llama", "qwen2-tied", "qwen3") for world in DENSE]
    sparse = [(name, world) for name in ("qwen3-moe", "deepseek") for world in SPARSE]
    special = [(name, world) for name in CONFIGS for world in SPECIAL]
    return dense + sparse + special


def options_of(number: int) -> dict[str, str]:
    """Every kind of experts and modules in turn."""
    return {
        "experts": ("grouped", "sequential", "legacy")[number % 3],
        "implementation": ("transformer_engine", "local")[number // 3 % 2],
    }


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[Model, Ids]]:
    found = {}
    for name, config in CONFIGS.items():
        model = model_of(config)
        found[name] = (model, unique_ids(model.tensors()))
    return found


def test_every_element_is_where_a_bridge_puts_it(models: dict[str, tuple[Model, Ids]]) -> None:
    """And all processes together publish each element exactly once: no padding, and no second copy."""
    for number, (name, world) in enumerate(cases()):
        model, ids = models[name]
        options: dict[str, Any] = options_of(number)
        layouts = []
        published = {tensor: np.zeros_like(of) for tensor, of in ids.items()}
        for at in world.ranks():
            layout = megatron(model, **at, vocab_multiple=16, **options)
            due = convert(CONFIGS[name], ids, at, multiple=16, **options)
            held = filled(layout, ids)
            assert held.keys() == due.keys(), (name, at)
            assert [one for one in due if not np.array_equal(held[one], due[one])] == [], (name, at)
            add_published(layout, due, published)
            layouts.append(layout)
        assert [one for one in ids if not np.array_equal(published[one], ids[one])] == [], (name, world)
        check_world(layouts)


def real(layers: int) -> dict[str, Any]:
    """Qwen3-30B-A3B."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 2048,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "vocab_size": 151936,
    }


class TestMistakesOfOthers:
    """Each was made by an existing integration."""

    @pytest.mark.parametrize(("tp", "rows"), [(2, 152064), (4, 152064), (8, 152576), (16, 153600)])
    def test_rows_of_the_padded_vocabulary_never_leak(self, tp: int, rows: int) -> None:
        config = {**real(1), "num_key_value_heads": 32}
        held = 0
        for rank in range(tp):
            layout = megatron(config, tp=tp, tp_rank=rank)
            for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
                assert layout.forms[name].shape == (rows // tp, 2048)
                (piece,) = layout.of_param[name]
                assert (piece.lo, piece.at) == ((rank * rows // tp, 0), (0, 0))
                held += piece.size[0]
        assert held == 2 * 151936

    def test_the_tied_copy_of_the_last_stage_is_sent_once(self) -> None:
        config = {**CONFIGS["qwen2-tied"]}
        copies = [
            piece.replica
            for at in World(2, 4, copies=3).ranks()
            for piece in megatron(config, **at, vocab_multiple=4).of_tensor.get(
                "model.embed_tokens.weight", ()
            )
            if piece.lo == (0, 0)
        ]
        assert sorted(copies) == list(range(6))

    def test_experts_and_layers_have_global_numbers(self) -> None:
        layout = megatron(real(48), pp=4, ep=8, pp_rank=2, ep_rank=3)
        (gate, up) = layout.of_param["decoder.layers.5.mlp.experts.linear_fc1.weight7"]
        assert gate.tensor == "model.layers.29.mlp.experts.55.gate_proj.weight"
        assert up.tensor == "model.layers.29.mlp.experts.55.up_proj.weight"

    def test_several_copies_are_not_taken_for_one(self) -> None:
        """Every process of eight says which copy it has, of norms and of experts in their own groups."""
        world = World(2, 1, 4, 1, copies=2)
        layouts = [megatron(real(1), **at) for at in world.ranks()]
        for tensor, copies in (
            ("model.norm.weight", 8),
            ("model.layers.0.mlp.experts.5.up_proj.weight", 2),
            ("model.layers.0.self_attn.k_proj.weight", 16),
        ):
            found = [piece for layout in layouts for piece in layout.of_tensor.get(tensor, ())]
            assert len(found) == copies
            assert len({(piece.lo, piece.replica) for piece in found}) == copies
        check_world(layouts)

    def test_megatrons_own_order_says_the_rank_among_experts_copies(self) -> None:
        for world in (World(8, 1, 4), World(2, 1, 4, copies=2), World(1, 1, 2, 2, copies=3)):
            for at in world.ranks():
                rest = {name: rank for name, rank in at.items() if name != "expert_replica"}
                assert megatron(real(1), **rest) == megatron(real(1), **at)

    def test_boxes_of_known_models(self) -> None:
        """As a loader emulation counted them: no norms, no router, no head."""
        dense = {**real(36), "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096}
        dense |= {"num_key_value_heads": 8, "intermediate_size": 12288}

        def boxes(config: dict[str, Any], **at: Any) -> int:
            apart = ("norm", "lm_head", ".mlp.gate.")
            pieces = megatron(config, **at).pieces
            return sum(not any(word in piece.tensor for word in apart) for piece in pieces)

        assert [boxes(dense, tp=tp) for tp in (1, 2, 4, 8)] == [1009, 577, 361, 253]
        assert [boxes(real(48), tp=tp, ep=8) for tp in (1, 8)] == [2929, 2401]


class TestRefusals:
    """One error that names the parameter and the numbers."""

    @pytest.mark.parametrize(
        ("ranks", "said"),
        [
            ({"tp": 3}, "linear_qkv.weight': 16 heads cannot be cut into 3 equal parts; choose"),
            ({"ep": 3}, "mlp.experts': 8 experts cannot be cut into 3 equal parts; choose"),
            ({"etp": 3}, "linear_fc1.weight0': 16 rows cannot be cut into 3 equal"),
            ({"pp": 3}, "equal parts are not 4 layers in 3 model chunks (3 stages of 1): say with layers="),
            ({"pp": 1 << 70}, "equal parts are not 4 layers"),
            ({"vpp": 1 << 70}, "equal parts are not 4 layers"),
            ({"pp": 2, "layers": (1, 2)}, "layers=[1, 2] are not 4 layers in 2 model chunks"),
        ],
    )
    def test_what_does_not_divide(self, ranks: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError) as caught:
            megatron(CONFIGS["qwen3-moe"], **ranks)
        assert caught.value.code == "bad_layout"
        assert said in str(caught.value)

    def test_query_groups_that_ranks_cannot_share(self) -> None:
        config = {**CONFIGS["llama"], "num_attention_heads": 12, "num_key_value_heads": 6}
        with pytest.raises(
            InputError, match=r"linear_qkv.weight': 6 query groups are not to be shared by 4 ra"
        ):
            megatron(config, tp=4)

    @pytest.mark.parametrize(
        "ranks",
        [
            {"tp": 2, "tp_rank": 2},
            {"ep_rank": -1},
            {"tp": 0},
            {"replica": -1},
            {"pp": 2, "pp_rank": 1.0},
            {"vpp_rank": 1},
            {"vocab_multiple": 0},
            {"vocab_multiple": 1.5},
            {"tp": "2"},
            {"tp": True},
            {"ep": None},
            {"expert_replica": 1.0},
            {"pp": 2, "layers": [2.0, 2.0]},
            {"pp": 2, "layers": "22"},
            {"pp": 2, "layers": [-1, 5]},
            {"layers": 4},
            {"experts": "stacked"},
            {"implementation": "apex"},
        ],
    )
    def test_ranks_that_there_are_not(self, ranks: dict[str, Any]) -> None:
        with pytest.raises(InputError) as caught:
            megatron(CONFIGS["qwen3-moe"], **ranks)
        assert caught.value.code == "bad_argument"

    def test_uneven_stages_are_said_with_layers(self) -> None:
        layouts = [megatron(CONFIGS["qwen3"], pp=3, pp_rank=rank, layers=(1, 0, 3)) for rank in range(3)]
        check_world(layouts)
        assert "model.layers.1.mlp.up_proj.weight" in layouts[2].of_tensor
