"""Chat templates: the same text as transformers, the template's own refusals, and no way out of the sandbox."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from roofline.core.errors import RequestError, TemplateError
from roofline.text.template import ChatTemplate, chat_template_of
from roofline.weights.checkpoint import open_checkpoint
from text.tiny import CHATML, byte_level

USER = {"role": "user", "content": "hi"}
CHAT = [USER, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "温度?"}]
TOOL = {"z": '温度 <°C> & "q" a/b — é', "a": [1, 2.0, True, None], "m": {}}
NO_REPEAT = (
    "{% for m in messages %}{% if loop.previtem is defined and loop.previtem.role == m.role %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
)


def test_tpl01_bos_text_comes_once() -> None:
    source = "{{bos_token}}{% for m in messages %}<|{{m.role}}|>{{m.content}}{% endfor %}"
    tokenizer = byte_level(add_bos_token=True, chat_template=source)
    text = chat_template_of(tokenizer.vocabulary).render([USER])
    assert text == "<|bos|><|user|>hi"
    assert tokenizer.encode_rendered(text).count(tokenizer.bos_id) == 1


def test_tpl01_no_bos_where_neither_file_nor_template_has_one() -> None:
    tokenizer = byte_level(add_bos_token=False, chat_template=CHATML)
    ids = tokenizer.encode_rendered(chat_template_of(tokenizer.vocabulary).render([USER]))
    assert tokenizer.bos_id not in ids
    assert tokenizer.bos_id not in tokenizer.encode("hi", add_special=True)


@pytest.mark.parametrize("messages", [[USER, USER, CHAT[1]], [CHAT[1], CHAT[1]]])
def test_tpl02_refusal_carries_the_templates_words(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(TemplateError, match=r"^roles must alternate$"):
        ChatTemplate(NO_REPEAT).render(messages)


FEATURES = {
    "none": ("{% set t = none %}{% if t is none %}A{% endif %}", "A"),
    "string methods": ("{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "b"),
    "namespace": (
        "{% set ns = namespace(x=0) %}{% for m in messages %}{% set ns.x = ns.x+1 %}{% endfor %}{{ns.x}}",
        "3",
    ),
    "negative slice": ("{% for m in messages[::-1] %}{{m.role}} {% endfor %}", "user assistant user "),
    "tojson": ("{{ tools|tojson(indent=2) }}", json.dumps([TOOL], ensure_ascii=False, indent=2)),
    "strftime_now": ("{{ strftime_now('%Y') }}", str(datetime.now().year)),
    "macro": ("{% macro f(a, b='x') %}{{a}}{{b}}{% endmacro %}{{ f(1) }}{{ f(1,2) }}", "1x12"),
    "is string": ("{{ messages[0].content is string }}", "True"),
    "selectattr": ("{{ messages|selectattr('role','equalto','user')|map(attribute='content')|join('|') }}", "hi|温度?"),
    "break": ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
    "generation": ("{% generation %}<{{ messages[0].content }}>{% endgeneration %}", "<hi>"),
    "blocks are trimmed": ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
    "concatenation": ("{{ 'a' ~ 1 ~ none ~ true ~ [1, 'x'] }}", "a1NoneTrue[1, 'x']"),
    "set block": ("{% set x %}q{{ 1 }}{% endset %}{{ x }}{% set y | upper %}q{% endset %}{{ y }}", "q1Q"),
    "literals": ("{% for a, b in {'k': (1, 2)}.items() %}{{ a }}{{ b[1] }}{% endfor %}{{ [1] + [2] }}", "k2[1, 2]"),
    "formats": ("{{ '%s-%d' % ('a', 3) }}{{ '{:>4}'.format('x') }}{{ 'ab' * 2 }}{{ 7 % 4 }}", "a-3   xabab3"),
    "recursive loop": (
        "{% for x in [[1, [2]]] recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}{% endfor %}",
        "12",
    ),
    "call block": ("{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}", "<in>"),
    "large numbers": ("{{ 4102444800|string }}{{ tools[0].a[0] + 4102444800 }}", "41024448004102444801"),
}


@pytest.mark.parametrize("name", FEATURES)
def test_tpl03_features_of_real_templates(name: str) -> None:
    source, expected = FEATURES[name]
    assert ChatTemplate(source).render(CHAT, [TOOL]) == expected


@pytest.mark.parametrize("name", FEATURES)
def test_tpl03_equals_transformers(name: str) -> None:
    oracle = pytest.importorskip("transformers.utils.chat_template_utils")
    source, _ = FEATURES[name]
    rendered, _ = oracle.render_jinja_template([CHAT], tools=[TOOL], chat_template=source, add_generation_prompt=True)
    assert ChatTemplate(source).render(CHAT, [TOOL]) == rendered[0]


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Brno"}}}
CHATS = [
    CHAT,
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": " 温度? "}],
    [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": '{"t": 3}'}, USER],
]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "<°C> & 'mehr'", "parameters": {}}}


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-0.5b"])
@pytest.mark.parametrize("tools", [None, [WEATHER]], ids=["plain", "tools"])
@pytest.mark.parametrize("messages", CHATS, ids=["turns", "system", "calls"])
def test_tpl03_templates_of_the_models_equal_transformers(
    model_path: Callable[[str], Path], name: str, tools: list[dict[str, Any]] | None, messages: list[dict[str, Any]]
) -> None:
    oracle = pytest.importorskip("transformers.utils.chat_template_utils")
    source = open_checkpoint(model_path(name)).metadata["tokenizer.chat_template"]
    for opens_answer in (True, False):
        rendered, _ = oracle.render_jinja_template(
            [messages], tools=tools, chat_template=source, add_generation_prompt=opens_answer
        )
        assert ChatTemplate(source).render(messages, tools, add_generation_prompt=opens_answer) == rendered[0]


@pytest.mark.parametrize("source", ["{% foo %}", "{{ a", "{% for x in y %}", "{{ x|nofilter }}"])
def test_tpl03_unparsable_template_is_an_error_not_chatml(source: str) -> None:
    with pytest.raises(TemplateError, match=r"can't be parsed: line 1.*(?s:.)*chat_template="):
        ChatTemplate(source)


def test_tpl03_no_template_names_the_override() -> None:
    vocabulary = byte_level().vocabulary
    with pytest.raises(TemplateError, match=r"no chat template(?s:.)*chat_template="):
        chat_template_of(vocabulary)
    assert chat_template_of(vocabulary, override="{{ messages[0].content }}").render([USER]) == "hi"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", {}),
        ("(indent=2)", {"indent": 2}),
        ("(ensure_ascii=False)", {}),
        ("(ensure_ascii=True)", {"ensure_ascii": True}),
        ("(separators=(',',':'), sort_keys=True)", {"separators": (",", ":"), "sort_keys": True}),
    ],
)
def test_tpl04_tojson_is_json_dumps(arguments: str, options: dict[str, Any]) -> None:
    text = ChatTemplate("{{ tools[0]|tojson" + arguments + " }}").render([USER], [TOOL])
    assert text == json.dumps(TOOL, **({"ensure_ascii": False} | options))


@pytest.mark.parametrize("source", [CHATML, CHATML.replace("m.content", "m.content|trim")], ids=["plain", "trimming"])
@pytest.mark.parametrize("content", ["red,", "red, ", " red,\n"])
def test_tpl06_prompt_ends_where_the_last_message_ends(source: str, content: str) -> None:
    messages = [USER, {"role": "assistant", "content": content}]
    text = ChatTemplate(source).render(messages, continue_final_message=True)
    shown = content.strip() if "trim" in source else content
    assert text == f"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n{shown}"
    oracle = pytest.importorskip("transformers.utils.chat_template_utils")
    rendered, _ = oracle.render_jinja_template([messages], chat_template=source, continue_final_message=True)
    assert text == rendered[0]


def test_tpl06_parts_equal_the_string_and_both_flags_are_refused() -> None:
    parts = [USER, {"role": "assistant", "content": [{"type": "text", "text": "red,"}]}]
    plain = [USER, {"role": "assistant", "content": "red,"}]
    template = ChatTemplate(CHATML)
    assert template.render(parts, continue_final_message=True) == template.render(plain, continue_final_message=True)
    with pytest.raises(RequestError, match="exclude each other"):
        template.render(plain, continue_final_message=True, add_generation_prompt=True)


def test_without_the_flag_a_new_turn_opens() -> None:
    text = ChatTemplate(CHATML).render(CHAT)
    assert text.endswith("温度?<|im_end|>\n<|im_start|>assistant\n")
    assert ChatTemplate(CHATML).render(CHAT, add_generation_prompt=False) == text.removesuffix(
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "messages", [["hi"], [{"content": "x"}], [{"role": "user", "content": [{"type": "image_url"}]}]]
)
def test_messages_of_the_wrong_form(messages: list[Any]) -> None:
    with pytest.raises(RequestError, match=r"messages\[0\]"):
        ChatTemplate(CHATML).render(messages)


def _grown(step: str, start: str = "'a'") -> str:
    """A template that applies `step` to ns.x sixty times."""
    return (
        "{% set ns = namespace(x="
        + start
        + ") %}{% for i in range(60) %}"
        + step
        + "{% endfor %}{{ ns.x|string|length }}"
    )


HOSTILE = {
    "attribute walk": "{{ cycler.__init__.__globals__.os.popen('touch CANARY').read() }}",
    "class walk": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attr filter": "{{ (''|attr('__class__')).mro() }}",
    "format walk": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "big ranges": "{% for i in range(10**6) %}{% for j in range(10**6) %}{% endfor %}{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "quiet loop": "{% set ns=namespace(x=0) %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% set ns.x = j %}{% endfor %}{% endfor %}",
    "recursive macro": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "branching macro": "{% macro f(n) %}{{ f(n-1) ~ f(n-1) if n else 'a' }}{% endmacro %}{{ f(60) }}",
    "huge product": "{{ 'a' * 10**9 }}",
    "huge list": "{{ ([0] * 10**9)|length }}",
    "huge power": "{{ 9 ** 99999 }}",
    "squared numbers": _grown("{% set ns.x = ns.x * ns.x %}", "3"),
    "doubling by ~": _grown("{% set ns.x = ns.x ~ ns.x %}"),
    "doubling by +": _grown("{% set ns.x = ns.x + ns.x %}"),
    "doubling by set block": _grown("{% set b %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = b %}"),
    "doubling by replace": _grown("{% set ns.x = ns.x.replace('a', 'aa') %}"),
    "doubling by join": _grown("{% set ns.x = [ns.x, ns.x]|join %}"),
    "doubling by format": _grown("{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
    "nested lists": _grown("{% set ns.x = [ns.x, ns.x] %}", "[1]"),
    "nested dictionaries": _grown("{% set ns.x = {'a': ns.x, 'b': ns.x} %}", "{}"),
    "dict calls": _grown("{% set ns.x = dict(a=ns.x, b=ns.x) %}", "{}"),
    "center": "{{ 'a'|center(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "width in %": "{{ '%1000000000d' % 1 }}",
    "star width": "{{ '%*d' % (1000000000, 1) }}",
    "width in format": "{{ '{:>1000000000}'.format(1) }}",
    "nested width": "{{ '{:>{}}'.format(1, 1000000000) }}",
    "replace product": "{% set x = 'a' * 1000000 %}{{ x.replace('a', x)|length }}",
    "replace filter": "{% set x = 'a' * 1000000 %}{{ x|replace('a', x)|length }}",
    "join product": "{% set x = 'a' * 1000000 %}{{ x.join('b' * 1000000)|length }}",
    "tabs": "{{ ('\\t' * 1000000).expandtabs(1000000)|length }}",
    "lipsum": "{{ lipsum(100000000) }}",
    "many large values": "".join(f"{{% set v{i} = 'a' * 16000000 %}}" for i in range(999)),
    "list of a text": "{{ ('a' * 16000000)|list|length }}",
    "endless output": "{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
    "mutation": "{{ messages.append(1) }}",
    "long source": "{{ x }}" * 100_000,
    "deep source": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_tpl07_hostile_templates_end_cleanly(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start_s = time.thread_time()
    with pytest.raises(TemplateError):
        ChatTemplate(HOSTILE[name]).render([USER])
    assert time.thread_time() - start_s < 2
    assert list(tmp_path.iterdir()) == []
