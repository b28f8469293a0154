"""Chat templates: messages to prompt text, with the template that came with the model or one that the user gave.

There is no stand-in: a model without a template can't chat until it is given one, and a template that fails says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from roofline.core.errors import RequestError, TemplateError
from roofline.text.sandbox import TemplateSandbox
from roofline.text.template_limits import MAX_CHARS, BudgetError
from roofline.text.vocabulary import Vocabulary

Message = Mapping[str, Any]

# Ends in a space: a template that trims the content takes the space off, and the cut below then trims as well.
_END_MARK = "\ufdd1end\ufdd1 "
# The longest templates in use have some 20,000; compiling this many takes up to two seconds.
_MAX_SOURCE_CHARS = 1 << 17
_OVERRIDE_HINT = "give a template with chat_template=..., or send a plain prompt"


class ChatTemplate:
    """One compiled template. `bos` and `eos` are the token texts that it sees as `bos_token` and `eos_token`.

    Raises TemplateError when the source can't be parsed.
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        self._special_tokens = {"bos_token": bos, "eos_token": eos}
        self._sandbox = TemplateSandbox()
        self._template = _compiled(self._sandbox, source)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """Prompt text, ending with the header of the answer or (`continue_final_message`) right after the last message.

        Further `variables` go to the template by name. Raises RequestError for messages of the wrong form, and
        TemplateError with the template's own words where it refuses them or breaks the limits on time and size.
        """
        if continue_final_message and add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt exclude each other",
                hint="the first goes on with the last message, the second opens a new one",
            )
        conversation = [_plain_message(message, index) for index, message in enumerate(messages)]
        if continue_final_message:
            conversation = _with_end_mark(conversation)
        opens_answer = not continue_final_message if add_generation_prompt is None else add_generation_prompt
        text = self._rendered(
            {
                **self._special_tokens,
                **variables,
                "messages": conversation,
                "tools": tools,
                "documents": documents,
                "add_generation_prompt": opens_answer,
            }
        )
        return _cut_at_end_mark(text) if continue_final_message else text

    def _rendered(self, variables: Mapping[str, Any]) -> str:
        """Runs the template; whatever goes wrong inside it is the template's doing and becomes a TemplateError."""
        try:
            with self._sandbox.limited():
                return self._collected(variables)
        except BudgetError as error:
            raise TemplateError(f"chat template stopped: it {error}") from error
        except jinja2.TemplateError as error:
            raise TemplateError(error.message or str(error)) from error
        except Exception as error:
            raise TemplateError(f"chat template failed: {type(error).__name__}: {error}") from error

    def _collected(self, variables: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        num_chars = 0
        for piece in self._template.generate(variables):
            self._sandbox.tick()
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > MAX_CHARS:
                raise BudgetError(f"wrote more than {MAX_CHARS} characters")
        return "".join(pieces)


def chat_template_of(vocabulary: Vocabulary, *, override: str | None = None, with_tools: bool = False) -> ChatTemplate:
    """The template to chat with: the user's own, else the file's (`with_tools` prefers its "tool_use" variant).

    Raises TemplateError where there is none: guessing a format would feed the model turns that it never saw.
    """
    source = override if override is not None else vocabulary.chat_template(with_tools=with_tools)
    if source is None:
        names = sorted(vocabulary.chat_templates)
        named = f"; it names {', '.join(names)} but no default" if names else ""
        raise TemplateError(f"the model file has no chat template{named}", hint=_OVERRIDE_HINT)
    eos_text = vocabulary.text_of(vocabulary.eos_id)
    return ChatTemplate(source, bos=vocabulary.text_of(vocabulary.bos_id), eos=eos_text)


def _compiled(sandbox: TemplateSandbox, source: str) -> jinja2.Template:
    if len(source) > _MAX_SOURCE_CHARS:
        raise TemplateError(f"chat template has {len(source)} characters; at most {_MAX_SOURCE_CHARS} are compiled")
    try:
        return sandbox.compile_template(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(
            f"chat template can't be parsed: line {error.lineno}: {error.message}", hint=_OVERRIDE_HINT
        ) from error
    except (RecursionError, MemoryError, SyntaxError) as error:
        raise TemplateError(
            f"chat template can't be compiled: {type(error).__name__}: {error}", hint=_OVERRIDE_HINT
        ) from error


def _plain_message(message: Message, index: int) -> dict[str, Any]:
    """A copy without null fields (templates test for the key) and with text parts joined into one string."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{index}] is {message!r}; a message is a mapping with a 'role' and a 'content'")
    plain = {key: value for key, value in message.items() if value is not None}
    if isinstance(plain.get("content"), (list, tuple)):
        plain["content"] = _joined_parts(plain["content"], index)
    return plain


def _joined_parts(parts: Sequence[Any], index: int) -> str:
    texts = []
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise RequestError(
                f"messages[{index}] has a content part of type {kind!r}; only 'text' parts are supported"
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _with_end_mark(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not conversation or not isinstance(conversation[-1].get("content"), str):
        raise RequestError("continue_final_message needs a last message whose content is text")
    last = conversation[-1]
    return [*conversation[:-1], {**last, "content": last["content"] + _END_MARK}]


def _cut_at_end_mark(text: str) -> str:
    """Text up to the end of the last message; where the template trims contents, trailing white space goes too."""
    cut = text.rfind(_END_MARK.rstrip())
    if cut < 0:
        raise TemplateError("the template does not write the last message's content, so it can't be continued")
    kept = text[:cut]
    return kept if text.startswith(_END_MARK, cut) else kept.rstrip()
