"""Tensor names: from the neutral role of a weight ("attn.q") to its place in a GGUF or Hugging Face checkpoint.

A family takes these tables as they are or overrides rows; the builder looks up every weight it declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Transform = Literal["none", "add_one"]


@dataclass(frozen=True)
class Slot:
    """Where a role's tensor is. `tensor` may hold {layer} and {expert}.

    `fused` lists the roles that share the tensor, in the order of their rows; `stacked` tensors hold all experts, [X, N, K].
    """

    tensor: str
    fused: tuple[str, ...] = ()
    stacked: bool = False
    transform: Transform = "none"


NameTable = Mapping[str, Slot]


def fused(tensor: str, *roles: str) -> dict[str, Slot]:
    """Rows for roles that lie one after another in one tensor."""
    return {role: Slot(tensor, fused=roles) for role in roles}


def with_transform(table: NameTable, roles: Iterable[str], transform: Transform) -> dict[str, Slot]:
    """`table` with `transform` on some roles."""
    changed = {role: Slot(table[role].tensor, transform=transform) for role in roles}
    return {**table, **changed}


def _table(prefix: str, suffixes: Mapping[str, str]) -> dict[str, Slot]:
    return {role: Slot(f"{prefix}{suffix}") for role, suffix in suffixes.items()}


HUGGINGFACE: NameTable = {
    "embed": Slot("model.embed_tokens.weight"),
    "final_norm": Slot("model.norm.weight"),
    "head": Slot("lm_head.weight"),
    **_table(
        "model.layers.{layer}.",
        {
            "attn_norm": "input_layernorm.weight",
            "attn.q": "self_attn.q_proj.weight",
            "attn.k": "self_attn.k_proj.weight",
            "attn.v": "self_attn.v_proj.weight",
            "attn.out": "self_attn.o_proj.weight",
            "attn.q.bias": "self_attn.q_proj.bias",
            "attn.k.bias": "self_attn.k_proj.bias",
            "attn.v.bias": "self_attn.v_proj.bias",
            "attn.out.bias": "self_attn.o_proj.bias",
            "attn.q_norm": "self_attn.q_norm.weight",
            "attn.k_norm": "self_attn.k_norm.weight",
            "mlp_norm": "post_attention_layernorm.weight",
            "mlp.gate": "mlp.gate_proj.weight",
            "mlp.up": "mlp.up_proj.weight",
            "mlp.down": "mlp.down_proj.weight",
            "mlp.gate.bias": "mlp.gate_proj.bias",
            "mlp.up.bias": "mlp.up_proj.bias",
            "mlp.down.bias": "mlp.down_proj.bias",
            "moe.router": "mlp.gate.weight",
            "moe.gate": "mlp.experts.{expert}.gate_proj.weight",
            "moe.up": "mlp.experts.{expert}.up_proj.weight",
            "moe.down": "mlp.experts.{expert}.down_proj.weight",
            "shared.gate": "mlp.shared_expert.gate_proj.weight",
            "shared.up": "mlp.shared_expert.up_proj.weight",
            "shared.down": "mlp.shared_expert.down_proj.weight",
            "shared.switch": "mlp.shared_expert_gate.weight",
        },
    ),
}

GGUF: NameTable = {
    "embed": Slot("token_embd.weight"),
    "final_norm": Slot("output_norm.weight"),
    "head": Slot("output.weight"),
    **_table(
        "blk.{layer}.",
        {
            "attn_norm": "attn_norm.weight",
            "attn.q": "attn_q.weight",
            "attn.k": "attn_k.weight",
            "attn.v": "attn_v.weight",
            "attn.out": "attn_output.weight",
            "attn.q.bias": "attn_q.bias",
            "attn.k.bias": "attn_k.bias",
            "attn.v.bias": "attn_v.bias",
            "attn.out.bias": "attn_output.bias",
            "attn.q_norm": "attn_q_norm.weight",
            "attn.k_norm": "attn_k_norm.weight",
            "attn_post_norm": "post_attention_norm.weight",
            "mlp_norm": "ffn_norm.weight",
            "mlp_post_norm": "post_ffw_norm.weight",
            "mlp.gate": "ffn_gate.weight",
            "mlp.up": "ffn_up.weight",
            "mlp.down": "ffn_down.weight",
            "mlp.gate.bias": "ffn_gate.bias",
            "mlp.up.bias": "ffn_up.bias",
            "mlp.down.bias": "ffn_down.bias",
            "moe.router": "ffn_gate_inp.weight",
            "shared.gate": "ffn_gate_shexp.weight",
            "shared.up": "ffn_up_shexp.weight",
            "shared.down": "ffn_down_shexp.weight",
            "shared.switch": "ffn_gate_inp_shexp.weight",
        },
    ),
    "moe.gate": Slot("blk.{layer}.ffn_gate_exps.weight", stacked=True),
    "moe.up": Slot("blk.{layer}.ffn_up_exps.weight", stacked=True),
    "moe.down": Slot("blk.{layer}.ffn_down_exps.weight", stacked=True),
}
