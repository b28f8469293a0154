"""What a tokenizer file declares apart from the encoding itself: bytes of each token, special ids, chat templates.

Built by gguf_tokenizer.py and hf_tokenizer.py; read by Tokenizer, the detokenizer and the engine (stop ids).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Names that end a turn or a document in the families we load: files often declare one EOS and leave the rest unsaid.
# "</s>" isn't here: in Gemma it is an HTML tag; where it is the EOS, the file says so.
END_OF_TURN_NAMES = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<EOT>",
        "<｜end▁of▁sentence｜>",
        "<eos>",
    }
)


@dataclass(frozen=True)
class Vocabulary:
    """One record per file.

    `token_bytes(id)` are the exact bytes a token adds to the output (empty for unused rows), for 0 <= id < `num_tokens`.
    `control_ids` are the tokens that text may never produce and `decode(skip_special=True)` leaves out.
    `strips_leading_space`: the encoder puts one space before a text, so decoding a whole text takes one off.
    """

    num_tokens: int
    token_bytes: Callable[[int], bytes]
    control_ids: frozenset[int]
    bos_id: int | None
    eos_ids: frozenset[int]
    eos_id: int | None = None
    unk_id: int | None = None
    adds_bos: bool = False
    adds_eos: bool = False
    strips_leading_space: bool = False
    chat_templates: Mapping[str, str] = field(default_factory=dict)

    def chat_template(self, *, with_tools: bool = False) -> str | None:
        """The file's template: "tool_use" for a chat with tools where there is one, else "default", else the only one."""
        templates = self.chat_templates
        chosen = (templates.get("tool_use") if with_tools else None) or templates.get("default")
        return chosen or (next(iter(templates.values())) if len(templates) == 1 else None)

    def text_of(self, token_id: int | None) -> str:
        """Text of a special token for templates (`bos_token`, `eos_token`); empty for None."""
        return "" if token_id is None else self.token_bytes(token_id).decode("utf-8", "replace")
