"""Bounds on what a chat template may make: sizes are worked out before an operation runs, or checked on its result.

Jinja's sandbox stops templates from reaching Python, not from filling memory; sandbox.py calls these at every operation
that can make a value larger than its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Prompt text of a few million tokens.
MAX_CHARS = 1 << 24
# What one item of a list counts for; it bounds the time that counting takes, too.
_ITEM_CHARS = 128
_MAX_INT_BITS = 4096
# Functions whose result can be as long as the product of two arguments' sizes; others never exceed the sum.
_GROWING = frozenset(
    {"center", "expandtabs", "format", "format_map", "indent", "join", "ljust", "replace", "rjust", "translate"}
    | {"wordwrap", "zfill"}
)
# Transient results may exceed MAX_CHARS before they are refused, by this factor at most.
_MAX_PRODUCT = MAX_CHARS * 16


class BudgetError(Exception):
    """A template used more time or space than any prompt needs."""


def check_size(value: Any) -> Any:
    """`value` itself if all its text and items, nested ones counted each time they occur, stay within MAX_CHARS."""
    if isinstance(value, str):
        _refuse_above(len(value))
    elif isinstance(value, (list, tuple, Mapping)):
        _size_of(value)
    return value


def check_call(name: str, value: Any, arguments: Iterable[Any]) -> None:
    """Refuses a string method or filter `name` on `value` that could make a text far above MAX_CHARS."""
    factors = [_factor(argument) for argument in arguments]
    if any(factor > MAX_CHARS for factor in factors):
        raise BudgetError(f"gave {name} an argument above {MAX_CHARS}")
    if name not in _GROWING:
        return
    if isinstance(value, str) and name in ("format", "format_map"):
        _check_format(value)
    if _size_of(value) * max(factors, default=1) > _MAX_PRODUCT:
        raise BudgetError(f"used {name} to make more than {MAX_CHARS} characters")


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuses sums, products, powers and % formats by the size that they would have."""
    if operator == "+":
        _refuse_above(_len(left) + _len(right))
    elif operator == "*":
        _refuse_above(max(_len(left) * _count(right), _len(right) * _count(left)))
        _check_bits(_bits(left) + _bits(right))
    elif operator == "**":
        _check_bits(_bits(left) * _count(right))
    elif operator == "%" and isinstance(left, str):
        _check_format(left)
        check_call("%", left, right if isinstance(right, tuple) else (right,))


def _size_of(value: Any) -> int:
    """Characters and items in `value`; stops with BudgetError as soon as they exceed the limit."""
    size = 0
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, (list, tuple)):
            size += _ITEM_CHARS * len(item)
            pending.extend(item)
        elif isinstance(item, Mapping):
            size += _ITEM_CHARS * len(item)
            pending.extend(item.keys())
            pending.extend(item.values())
        _refuse_above(size)
    return size


def _check_format(pattern: str) -> None:
    """Widths in a format string are spelled out in digits."""
    _refuse_above(sum(int(digits[:20]) for digits in re.findall(r"\d+", pattern)))


def _refuse_above(size: int) -> None:
    if size > MAX_CHARS:
        raise BudgetError(f"made a value of {size} characters; at most {MAX_CHARS} are allowed")


def _check_bits(bits: int) -> None:
    if bits > _MAX_INT_BITS:
        raise BudgetError(f"made a number of {bits} bits; at most {_MAX_INT_BITS} are allowed")


def _factor(argument: Any) -> int:
    """How many times over an argument can appear in, or widen, a result."""
    if isinstance(argument, int):
        return abs(argument)
    return _size_of(argument) if isinstance(argument, (str, list, tuple, Mapping)) else 1


def _len(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple)) else 0


def _count(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0
