"""Collects operators, weight shapes and weight sources while a family describes its layers, then checks them as one Model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roofline.models.config import ModelConfig
from roofline.models.names import NameTable, Transform
from roofline.models.rope import rope_spec
from roofline.program.ops import Op, RopeSpec, WeightSpec
from roofline.program.program import Program, build


@dataclass(frozen=True)
class WeightSource:
    """Where a program's weight comes from: rows [start, stop) of `tensor` flattened to [prod(shape[:-1]), K], or all of it."""

    tensor: str
    rows: tuple[int, int] | None = None
    transform: Transform = "none"


@dataclass(frozen=True)
class Model:
    """A family's result: the config it was built from, its program, and the source of every weight by program name."""

    config: ModelConfig
    program: Program
    sources: Mapping[str, WeightSource]


@dataclass(frozen=True)
class _Place:
    role: str
    layer: int | None
    expert: int | None


class ModelBuilder:
    """What a family writes into. `max_context_len` fixes the rotary tables that depend on length."""

    def __init__(self, config: ModelConfig, names: NameTable, max_context_len: int) -> None:
        self.config = config
        self._names = names
        self._ops: list[Op] = []
        self._specs: dict[str, WeightSpec] = {}
        self._places: dict[str, _Place] = {}
        self._rope = rope_spec(config.rope, config.rope_style, max_context_len)
        self._local_rope = rope_spec(config.local_rope, config.rope_style, max_context_len)

    def rope_of(self, layer: int) -> RopeSpec:
        """Rotary table of a layer: windowed layers may have their own."""
        return self._local_rope if self.config.windows[layer] else self._rope

    def add(self, op: Op) -> None:
        self._ops.append(op)

    def weight(self, role: str, *shape: int, layer: int | None = None, expert: int | None = None) -> str:
        """Declare a weight [N, K] or [N] and return its program name, such as "layers.3.attn.q"."""
        name = role if layer is None else f"layers.{layer}.{role}"
        name = name if expert is None else f"{name}.{expert}"
        self._specs[name] = WeightSpec(name, shape)
        self._places[name] = _Place(role, layer, expert)
        return name

    def finish(self) -> Model:
        """Check the program and resolve every weight's source."""
        program = build(self._ops, self._specs.values())
        return Model(self.config, program, {name: self._source(name) for name in self._specs})

    def _source(self, name: str) -> WeightSource:
        place = self._places[name]
        slot = self._names[place.role]
        tensor = slot.tensor.format(layer=place.layer, expert=place.expert)
        num_rows = self._specs[name].shape[0]
        if slot.stacked and place.expert is not None:
            return WeightSource(tensor, (place.expert * num_rows, (place.expert + 1) * num_rows), slot.transform)
        if slot.fused:
            before = slot.fused[: slot.fused.index(place.role)]
            start = sum(self._specs[f"layers.{place.layer}.{role}"].shape[0] for role in before)
            return WeightSource(tensor, (start, start + num_rows), slot.transform)
        return WeightSource(tensor, None, slot.transform)
