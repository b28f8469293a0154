"""Building blocks of decoder layers. A family strings them together; each adds a few operators and declares their weights.

Values: "hidden" is the residual stream [T, E], "normed" its norm, "mixed" what a block adds back.
"""

from __future__ import annotations

from roofline.models.builder import ModelBuilder
from roofline.program import ops


def embed(b: ModelBuilder) -> None:
    """token ids -> hidden."""
    weight = b.weight("embed", b.config.vocab_size, b.config.hidden_size)
    b.add(ops.Embed("hidden", weight, b.config.embedding_scale))


def norm(b: ModelBuilder, role: str, layer: int | None = None, *, x: str = "hidden", out: str = "normed") -> None:
    """x -> out, RMS norm of the whole row."""
    weight = b.weight(role, b.config.hidden_size, layer=layer)
    b.add(ops.Norm(x, out, weight, b.config.norm_eps, b.config.hidden_size))


def residual(b: ModelBuilder) -> None:
    """hidden += mixed."""
    b.add(ops.Add("hidden", "mixed", "hidden"))


def attention(b: ModelBuilder, layer: int, *, qk_norm: bool = False) -> None:
    """normed -> mixed: projections, optional norm of each query and key head, rotary embedding, attention, output projection."""
    config = b.config
    for part, num_heads in (("q", config.num_heads), ("k", config.num_kv_heads), ("v", config.num_kv_heads)):
        _linear(b, layer, f"attn.{part}", "normed", part, num_heads * config.head_size, has_bias=config.qkv_bias)
    for part, num_heads in (("q", config.num_heads), ("k", config.num_kv_heads)):
        if qk_norm:
            weight = b.weight(f"attn.{part}_norm", config.head_size, layer=layer)
            b.add(ops.Norm(part, part, weight, config.norm_eps, config.head_size, num_heads))
        b.add(ops.Rope(part, num_heads, config.head_size, b.rope_of(layer)))
    b.add(_attention_op(b, layer))
    width = config.num_heads * config.head_size
    _linear(b, layer, "attn.out", "attended", "mixed", config.hidden_size, in_width=width, has_bias=config.out_bias)


def _attention_op(b: ModelBuilder, layer: int) -> ops.Attention:
    return ops.Attention(
        q="q",
        k="k",
        v="v",
        out="attended",
        layer=layer,
        num_heads=b.config.num_heads,
        num_kv_heads=b.config.num_kv_heads,
        head_size=b.config.head_size,
        scale=b.config.attention_scale,
        window=b.config.windows[layer],
        soft_cap=b.config.attention_soft_cap,
    )


def mlp(b: ModelBuilder, layer: int) -> None:
    """normed -> mixed, the gated MLP."""
    ffn_size, has_bias = b.config.ffn_size, b.config.mlp_bias
    _linear(b, layer, "mlp.gate", "normed", "gate", ffn_size, has_bias=has_bias)
    _linear(b, layer, "mlp.up", "normed", "up", ffn_size, has_bias=has_bias)
    b.add(ops.GatedAct("gate", "up", "gated", b.config.activation))
    _linear(b, layer, "mlp.down", "gated", "mixed", b.config.hidden_size, in_width=ffn_size, has_bias=has_bias)


def moe(b: ModelBuilder, layer: int) -> None:
    """normed -> mixed, the routed experts."""
    config = b.config
    assert config.moe is not None
    experts = range(config.moe.num_experts)
    wide, narrow = (config.moe.ffn_size, config.hidden_size), (config.hidden_size, config.moe.ffn_size)
    b.add(
        ops.MoE(
            x="normed",
            out="mixed",
            router=b.weight("moe.router", config.moe.num_experts, config.hidden_size, layer=layer),
            gate=tuple(b.weight("moe.gate", *wide, layer=layer, expert=expert) for expert in experts),
            up=tuple(b.weight("moe.up", *wide, layer=layer, expert=expert) for expert in experts),
            down=tuple(b.weight("moe.down", *narrow, layer=layer, expert=expert) for expert in experts),
            top_k=config.moe.top_k,
            renormalize=config.moe.renormalize,
            act=config.activation,
        )
    )


def shared_expert(b: ModelBuilder, layer: int) -> None:
    """mixed += sigmoid(switch . normed) * expert(normed)."""
    assert b.config.moe is not None
    ffn_size = b.config.moe.shared_ffn_size
    _linear(b, layer, "shared.gate", "normed", "shared_gate", ffn_size)
    _linear(b, layer, "shared.up", "normed", "shared_up", ffn_size)
    b.add(ops.GatedAct("shared_gate", "shared_up", "shared_gated", b.config.activation))
    _linear(b, layer, "shared.down", "shared_gated", "shared", b.config.hidden_size, in_width=ffn_size)
    _linear(b, layer, "shared.switch", "normed", "switch", 1)
    b.add(ops.SigmoidGate("shared", "switch", "shared"))
    b.add(ops.Add("mixed", "shared", "mixed"))


def head(b: ModelBuilder) -> None:
    """hidden -> logits: final norm and the head, which is the embedding where they are tied."""
    norm(b, "final_norm")
    weight = "embed" if b.config.tied else b.weight("head", b.config.vocab_size, b.config.hidden_size)
    b.add(ops.Logits("normed", "logits", weight, b.config.final_soft_cap))


def _linear(
    b: ModelBuilder,
    layer: int,
    role: str,
    x: str,
    out: str,
    out_width: int,
    *,
    in_width: int | None = None,
    has_bias: bool = False,
) -> None:
    weight = b.weight(role, out_width, in_width or b.config.hidden_size, layer=layer)
    bias = b.weight(f"{role}.bias", out_width, layer=layer) if has_bias else None
    b.add(ops.Linear(x, out, weight, bias))
