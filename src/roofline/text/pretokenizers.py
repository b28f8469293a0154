"""How byte-level BPE cuts text into words before merging, by the name in `tokenizer.ggml.pre`.

A wrong rule spoils a model's answers without any visible sign, so a name that isn't here is an error (GGUF loader).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers


@dataclass(frozen=True)
class PreTokenizer:
    """`patterns` cut in turn, each inside the pieces that the ones before left.

    `whole_words` takes a word that is itself in the vocabulary without merging; `adds_bos` is what a file means that
    says nothing about BOS.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, byte_level])


_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CJK = r"[\x{800}-\x{9fa5}\x{ac00}-\x{d7ff}]+"


def _tiktoken_style(max_digits: int) -> str:
    digits = r"\p{N}" if max_digits == 1 else rf"\p{{N}}{{1,{max_digits}}}"
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


# Letters of the cased scripts as DeepSeek-LLM's tokenizer lists them, by code point: some would change under Unicode
# normalization if an editor touched them as characters.
_DEEPSEEK_LETTER_RANGES = (
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a 38c "
    "38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b "
    "1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 "
    "1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 "
    "2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 2c00-2c7b "
    "2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 "
    "fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df "
    "1e900-1e943"
)
_DEEPSEEK_LETTERS = "".join(
    "-".join(rf"\x{{{end}}}" for end in code_range.split("-")) for code_range in _DEEPSEEK_LETTER_RANGES.split()
)
_DEEPSEEK_V3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)

_LLAMA3 = PreTokenizer((_tiktoken_style(3),), whole_words=True, adds_bos=True)
_QWEN2 = PreTokenizer((_tiktoken_style(1),))
_DIGITS_THEN_GPT2 = PreTokenizer((r"\p{N}", _GPT2))
_GPT2_ONLY = PreTokenizer((_GPT2,))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0"), _LLAMA3
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreTokenizer((_tiktoken_style(3),))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "solar-open"), _QWEN2),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS_THEN_GPT2
    ),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "granite-docling"), _GPT2_ONLY),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
            r"\s+$",
            _CJK,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-v3": PreTokenizer((r"\p{N}{1,3}", r"[\x{4e00}-\x{9fa5}\x{3040}-\x{30ff}]+", _DEEPSEEK_V3_WORDS)),
}
