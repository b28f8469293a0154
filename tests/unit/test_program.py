"""A program that contradicts itself is refused when it is built, with the operator at fault."""

from __future__ import annotations

import pytest

from roofline.program import ops
from roofline.program.ops import WeightSpec
from roofline.program.program import KvLayer, build

SPECS = [WeightSpec("embed", (10, 8)), WeightSpec("w", (6, 8)), WeightSpec("head", (10, 6)), WeightSpec("norm", (8,))]
EMBED, LINEAR, HEAD = ops.Embed("x", "embed"), ops.Linear("x", "y", "w"), ops.Logits("y", "logits", "head")


def test_widths_layers_and_vocabulary_are_derived():
    attention = ops.Attention("x", "x", "x", "y", 0, 2, 2, 4, 0.5, window=7)
    program = build([EMBED, attention, ops.Logits("y", "logits", "embed")], SPECS[:1])
    assert program.widths == {"x": 8, "y": 8, "logits": 10}
    assert program.kv_layers == (KvLayer(2, 4, 7),)
    assert program.vocab_size == 10


ROPE = ops.RopeSpec(4, "half", (1.0, 0.1))


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ([LINEAR, HEAD], "Linear -> 'y': value 'x' is read before it is written"),
        ([EMBED, ops.Linear("x", "y", "absent"), HEAD], "weight 'absent' is missing"),
        ([EMBED, LINEAR, ops.Linear("x", "y", "embed"), HEAD], "'y' has width 6 and can't become 10"),
        ([EMBED, LINEAR], "ends with its one Logits"),
        ([EMBED, LINEAR, HEAD, HEAD], "ends with its one Logits"),
        ([EMBED, ops.Attention("x", "x", "x", "z", 1, 2, 2, 4, 0.5), LINEAR, HEAD], "count up from 0"),
        ([EMBED, ops.Linear("x", "y", "head"), HEAD], r"Linear -> 'y': does not fit together: values \{'x': 8\}"),
        ([EMBED, ops.Linear("x", "y", "w", bias="norm"), HEAD], "Linear -> 'y': does not fit"),
        ([EMBED, LINEAR, ops.Logits("x", "logits", "head")], "Logits -> 'logits': does not fit"),
        ([EMBED, ops.Norm("x", "z", "norm", 1e-6, 8, 2), LINEAR, HEAD], "Norm -> 'z': does not fit"),
        ([EMBED, ops.Rope("x", 3, 4, ROPE), LINEAR, HEAD], "Rope -> 'x': does not fit"),
        ([EMBED, ops.Rope("x", 2, 4, ops.RopeSpec(4, "half", (1.0,))), LINEAR, HEAD], "Rope -> 'x': does not fit"),
        ([EMBED, ops.Attention("x", "x", "x", "z", 0, 3, 2, 4, 0.5), LINEAR, HEAD], "Attention -> 'z': does not fit"),
        ([EMBED, ops.Attention("x", "x", "x", "z", 0, 2, 1, 4, 0.5), LINEAR, HEAD], "Attention -> 'z': does not fit"),
        ([EMBED, LINEAR, ops.GatedAct("x", "y", "z", "silu"), HEAD], "GatedAct -> 'z': does not fit"),
        ([EMBED, LINEAR, ops.Add("x", "y", "z"), HEAD], "Add -> 'z': does not fit"),
        ([EMBED, LINEAR, ops.SigmoidGate("y", "x", "z"), HEAD], "SigmoidGate -> 'z': does not fit"),
        (
            [EMBED, ops.MoE("x", "z", "w", ("w",), ("w",), ("w",), 2, True, "silu"), LINEAR, HEAD],
            "MoE -> 'z': does not",
        ),
    ],
)
def test_contradictions_are_refused(operators, message):
    with pytest.raises(ValueError, match=message):
        build(operators, SPECS)


def test_unused_weight_is_refused():
    with pytest.raises(ValueError, match="no operator uses: spare"):
        build([EMBED, LINEAR, HEAD], [*SPECS[:3], WeightSpec("spare", (1, 1))])
