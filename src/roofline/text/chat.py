"""Messages to token ids: renders the chat template and keeps control tokens that users wrote from becoming real ones.

The engine's chat calls come here. A template glues user text between control tokens, and encoding the result would let a
message that spells "<|im_end|>" end its own turn. So marks go into such spellings before rendering and come out after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from roofline.text.special_split import SpecialSplitter
from roofline.text.template import ChatTemplate, Message
from roofline.text.tokenizer import Tokenizer

# A code point that Unicode reserves for such inner use. One in the user's own text is doubled.
_MARK = "\ufdd0"


class ChatEncoder:
    """One tokenizer with one template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        vocabulary = tokenizer.vocabulary
        texts = {vocabulary.text_of(token_id): token_id for token_id in vocabulary.control_ids}
        self._control = SpecialSplitter({text: token_id for text, token_id in texts.items() if len(text) > 1})
        self._control_texts = {token_id: text for text, token_id in texts.items()}

    def encode(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, **options: Any
    ) -> list[int]:
        """Ids of the prompt; `options` as for ChatTemplate.render.

        Control tokens written by the template are control tokens; written in a message, tool or document they are text.
        Without such text the ids are those of the rendered string as it stands.
        """
        if options.get("documents") is not None:
            options["documents"] = self._marked(options["documents"])
        text = self._template.render(self._marked(messages), self._marked(tools), **options)
        if _MARK not in text:
            return self._tokenizer.encode_rendered(text)
        ids: list[int] = []
        for piece in self._control.split(text):
            ids += [piece] if isinstance(piece, int) else self._tokenizer.encode(_unmarked(piece), add_special=False)
        return ids

    def _marked(self, value: Any) -> Any:
        """A copy of `value` whose strings hold a mark inside each spelled-out control token."""
        if isinstance(value, str):
            return self._marked_text(value)
        if isinstance(value, Mapping):
            return {self._marked(key): self._marked(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._marked(item) for item in value]
        return value

    def _marked_text(self, text: str) -> str:
        pieces = []
        for piece in self._control.split(text.replace(_MARK, _MARK * 2)):
            if isinstance(piece, int):
                spelled = self._control_texts[piece]
                piece = spelled[0] + _MARK + spelled[1:]
            pieces.append(piece)
        return "".join(pieces)


def _unmarked(text: str) -> str:
    return re.sub(f"{_MARK}({_MARK}?)", r"\1", text)
