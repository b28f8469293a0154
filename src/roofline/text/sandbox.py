"""Jinja for chat templates out of model files: an immutable sandbox with the names that templates are written for.

Template text comes with the weights and isn't trusted. The sandbox keeps it off Python's internals; every loop round,
call, filter and operation that can grow a value is checked for time and size, since Jinja alone has no limits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from roofline.text.template_limits import MAX_CHARS, BudgetError, check_call, check_operands, check_size

# CPU time of the rendering thread, so that a busy machine doesn't refuse an honest template. MEASURED: the longest of the
# models' own templates takes 3 ms for 100 messages.
MAX_RENDER_S = 0.4
# All intermediate texts together: some twenty operations on the longest prompt.
MAX_TOTAL_CHARS = MAX_CHARS * 20


@dataclass
class _Budget:
    """What one rendering may still use."""

    deadline_s: float
    num_chars: int

    def tick(self) -> None:
        if time.thread_time() > self.deadline_s:
            raise BudgetError(f"ran for more than {MAX_RENDER_S:g} s")

    def charged(self, value: Any) -> Any:
        """`value`, its text taken off the budget: many values below the limit fill memory as well as one above it."""
        if isinstance(value, str):
            self.num_chars -= len(value)
            if self.num_chars < 0:
                raise BudgetError(f"made more than {MAX_TOTAL_CHARS} characters in all")
        return check_size(value)


class GenerationTag(Extension):
    """`{% generation %}` marks assistant text for training; in a prompt its body renders as it stands."""

    tags = {"generation"}  # noqa: RUF012 - the type that Jinja declares

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """`tojson` without HTML escapes, `raise_exception`, `strftime_now`, loop controls, the generation tag.

    `compile_template` inserts the checks; `limited` starts the clock of one rendering in the calling thread. A template
    that breaks a limit raises BudgetError.
    """

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[GenerationTag, loopcontrols]
        )
        self._budget: ContextVar[_Budget] = ContextVar("budget")
        self.filters["tojson"] = _tojson
        self.filters = {name: self._checked_filter(name, function) for name, function in self.filters.items()}
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        # Writes as many paragraphs as it is asked for in one call, which no check could interrupt.
        del self.globals["lipsum"]

    def compile_template(self, source: str) -> jinja2.Template:
        """Raises jinja2.TemplateSyntaxError."""
        tree = _InsertChecks().visit(self.parse(source))
        return jinja2.Template.from_code(self, self.compile(tree), self.make_globals(None))

    @contextmanager
    def limited(self) -> Iterator[None]:
        token = self._budget.set(_Budget(time.thread_time() + MAX_RENDER_S, MAX_TOTAL_CHARS))
        try:
            yield
        finally:
            self._budget.reset(token)

    def tick(self) -> None:
        self._budget.get().tick()

    def join_texts(self, *values: Any) -> str:
        """The `~` operator."""
        return "".join([str(value) for value in values])

    def literal(self, value: Any) -> Any:
        """A list, tuple or dictionary written in the template; `call` has already checked its size."""
        return value

    def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.tick()
        # The sandbox wraps str.format, so the method and its string are one step further in.
        method = getattr(function, "__wrapped__", function)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            check_call(method.__name__, owner, (*args, *kwargs.values()))
        return self._budget.get().charged(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        check_operands(operator, left, right)
        return self._budget.get().charged(super().call_binop(context, operator, left, right))

    def _checked_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        num_injected = 0 if getattr(function, "jinja_pass_arg", None) is None else 1

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            value, *others = args[num_injected:]
            check_call(name, value, (*others, *kwargs.values()))
            return self._budget.get().charged(function(*args, **kwargs))

        return checked


class _InsertChecks(NodeTransformer):
    """Loop rounds and macros tick; `~`, literals and set blocks, which grow values without a call, become calls."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's visitor names
        self.generic_visit(node)
        node.body.insert(0, _tick_statement(node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _tick_statement(node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _sandbox_call("join_texts", node.nodes, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _sandbox_call("literal", [node], node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _sandbox_call("literal", [node], node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _sandbox_call("literal", [node], node.lineno) if node.ctx == "load" else node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.filter = nodes.Filter(node.filter, "string", [], [], None, None, lineno=node.lineno)
        return node


def _sandbox_call(method: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    """A call of one of the sandbox's own methods, out of reach of names that the template defines."""
    return nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None, lineno=line)


def _tick_statement(line: int) -> nodes.ExprStmt:
    return nodes.ExprStmt(_sandbox_call("tick", [], line), lineno=line)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML and sorts keys; models were trained on plain json.dumps."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
