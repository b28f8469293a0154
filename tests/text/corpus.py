"""The tokenizer corpus: some 2,700 deterministic lines of many scripts, code, white space and damaged UTF-8.

Imported by the tests and by tools/tokenizer_golden.py, which records what llama.cpp makes of the same lines.
Only the standard library is used, so that any Python can import it.
"""

from __future__ import annotations

import hashlib
import random

SENTENCES = {
    "english": [
        "The tram was late again, so we walked along the river and counted herons.",
        "I'd've told you, but they're sure it's fine; we'll see, won't we? DON'T SHOUT, I'LL LISTEN.",
        "Prices rose by 12.5% in 2024 (from $1,299.00 to $1,461.38) - nobody's happy.",
        "Dr. O'Neill-Smith e-mailed re: the 3rd-quarter figures @ 09:45; see https://example.org/a?b=c&d=%20e#f.",
        "  Two spaces lead, three   sit in the middle, and one trails ",
        "supercalifragilisticexpialidocious antidisestablishmentarianism zzzzzzzzqqqqqq",
    ],
    "chinese": [
        "清晨的雾还没散，渡口的老人已经把船擦得发亮。",
        "请用两句话说明：为什么缓存命中率比平均延迟更重要？",
        "他说：“明天下午３点半，在图书馆二楼见。”然后就走了……",
        "龘靐齉爩 这些字很少有人会念，𠮷野家的𠮷也常常显示不出来。",
        "把變量名從 camelCase 改成 snake_case，然后运行 make test。",
    ],
    "arabic": [
        "وصل القطار متأخرًا فقرأنا صفحتين من الكتاب ونحن ننتظر.",
        "السعر ١٢٫٥ دينارًا، والخصم ٪٣٠ لمن يحجز قبل يوم الخميس؟",
        "كَتَبَ الوَلَدُ دَرْسَهُ ثُمَّ نَامَ.",
    ],
    "emoji": [
        "🦊 jumps 🐕‍🦺 over 👨‍👩‍👧‍👦 and 🏳️‍🌈 waves 👋🏽👋🏿",
        "☕️→⌚️ 1️⃣2️⃣3️⃣ 🇨🇿🇯🇵🇧🇷 ✨🫠🫶🏻🪿",
        "ok👍ok👍🏻ok🤷‍♀️",
    ],
    "code": [
        "def mean(xs: list[float]) -> float:\n\treturn sum(xs) / len(xs)  # O(n)\n",
        "for (int i = 0; i < n; ++i) { a[i] = (b[i] << 3) ^ 0xFFu; }\r\n",
        "SELECT name, COUNT(*) FROM users WHERE age >= 18 AND city != 'Brno' GROUP BY name;",
        '{"id": 17, "tags": ["a", "b\\n"], "ok": true, "ratio": 1e-9, "none": null}',
        '<div class="row"><table><tr><td>1</td></tr></table></div> <!-- end --> <b>x</b> > </p>',
        "#!/bin/sh\nset -eu\nawk -F'\\t' '{print $2}' \"$1\" | sort -u >/tmp/out.txt\n",
        "let f = |x: &str| -> Option<u32> { x.parse().ok() };    // trailing\t\t\n        }\n    }\n}",
        "$$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$$",
    ],
    "other": [
        "Příšerně žluťoučký kůň úpěl ďábelské ódy; Straße, naïve, Ærøskøbing.",
        "Утром мы пили чай с вареньем, а потом чинили забор.",
        "Το τρένο άργησε· διαβάσαμε δύο σελίδες.",
        "הרכבת איחרה, אז קראנו שני עמודים.",
        "ट्रेन देर से आई, तो हमने दो पन्ने पढ़े।",
        "รถไฟมาสายเราจึงอ่านหนังสือสองหน้า",
        "기차가 늦어서 책을 두 쪽 읽었다.",
        "電車が遅れたので、本を二ページ読んだ。ｶﾀｶﾅも。",
        "Tàu đến muộn nên chúng tôi đọc hai trang sách.",
        "e\u0301 a\u0308\u0323 n\u0303 \u1100\u1161\u11a8 ﬁ ﬂ Ⅳ ½ ² ℌ Ｆｕｌｌ ｗｉｄｔｈ",
    ],
}
SPACES = [
    " ",
    "  ",
    "    ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\u200b",
    "\ufeff",
    "\u2028",
    "\x85",
]
# Written by users as plain text, and by templates as control tokens.
CONTROL_TEXTS = [
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<bos>",
        "<eos>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<s>",
        "</s>",
    ),
    *("<unk>", "<pad>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<repo_name>", "<unused17>", "[multimodal]"),
]
# Lines that users reported against other engines (prefix spaces, marks, long runs).
REPORTED = [
    *("<s> a", "<s>a", "</s>  b", " lead", "  two", "a<|im_start|>user\nhi", "\tx", "x ", "", "\n\n\n", "１２３"),
    *("Café déjà vu — 123 😊", "a\u0301", "\u200b", "\ufeffx", "नमस्ते", "1234567", "don't I'LL", "\r\n", "A" * 3000),
    *("Hello  world", " a  b", "\n\n  x", "don't  stop", "x\ty", "。 你 好", "\u0000", "a\u0000b", "\u0301", "\u0e31x"),
    *("a" * 777, " " * 777, "\n" * 77, "=" * 200, "▁", "a▁b", "▁▁x ▁y", "> </p> >▁</", "\u017f's 'ſ it'ſ"),
]


def corpus_lines() -> list[str]:
    """All lines; the same in every run."""
    source = random.Random(20_240_607)
    lines = [*REPORTED, *CONTROL_TEXTS]
    for sentences in SENTENCES.values():
        lines += sentences
    for sentences in SENTENCES.values():
        lines += [_remixed(source, sentences) for _ in range(180)]
    lines += [_code_switched(source) for _ in range(300)]
    lines += [_white_space(source) for _ in range(250)]
    lines += [_numbers(source) for _ in range(150)]
    lines += [_any_characters(source) for _ in range(350)]
    lines += [_damaged(source) for _ in range(350)]
    lines += [_with_control_text(source) for _ in range(100)]
    return lines


def rendered_lines() -> list[str]:
    """What chat templates write: control tokens around text from the corpus."""
    source = random.Random(20_240_608)
    everything = [sentence for sentences in SENTENCES.values() for sentence in sentences]
    lines = []
    for _ in range(200):
        pieces = []
        for _ in range(source.randint(1, 6)):
            pieces += [source.choice(CONTROL_TEXTS), source.choice(["", "user\n", "\n", " ", "  "])]
            pieces += [source.choice(everything)[: source.randint(0, 60)]]
        lines.append("".join(pieces) + source.choice(["", "<|im_end|>\n", "<end_of_turn>\n"]))
    return lines


def digest_of_ids(ids: list[int]) -> str:
    """Eight hexadecimal digits that stand for a list of token ids in the golden files."""
    return hashlib.blake2b(" ".join(map(str, ids)).encode(), digest_size=4).hexdigest()


def digest_of_lines(lines: list[str]) -> str:
    """Tells a golden file that belongs to another corpus."""
    return hashlib.blake2b("\0\1".join(lines).encode(), digest_size=8).hexdigest()


def _remixed(source: random.Random, sentences: list[str]) -> str:
    """A few cuttings of the sentences, joined by odd spaces."""
    pieces = []
    for _ in range(source.randint(1, 4)):
        sentence = source.choice(sentences)
        start = source.randrange(len(sentence))
        pieces.append(sentence[start : start + source.randint(1, 60)])
    text = source.choice(["", " ", source.choice(SPACES)]).join(pieces)
    return source.choice([text, text, text.upper(), text.title(), text[::-1]])


def _code_switched(source: random.Random) -> str:
    """Scripts that change in the middle of a word."""
    everything = [sentence for sentences in SENTENCES.values() for sentence in sentences]
    pieces = []
    for _ in range(source.randint(2, 8)):
        sentence = source.choice(everything)
        start = source.randrange(len(sentence))
        pieces.append(sentence[start : start + source.randint(1, 9)])
    return source.choice(["", " "]).join(pieces)


def _white_space(source: random.Random) -> str:
    pieces = []
    for _ in range(source.randint(1, 9)):
        pieces.append(source.choice(SPACES) * source.choice([1, 1, 2, 3, 7, 16, 33]))
        pieces.append(source.choice(["", "x", "if", "}", "'s", "7", "é", "中", "-", "<b>"]))
    return "".join(pieces)


def _numbers(source: random.Random) -> str:
    pieces = []
    for _ in range(source.randint(1, 5)):
        digits = "".join(source.choice("0123456789") for _ in range(source.randint(1, 12)))
        pieces.append(source.choice(["", "-", "$", "0x", "٣", "½", "#"]) + digits)
    return source.choice([" ", ", ", ".", "", "/", ":"]).join(pieces)


def _any_characters(source: random.Random) -> str:
    """Characters of every plane, surrogates left out, runs of a few from one block."""
    pieces = []
    for _ in range(source.randint(1, 8)):
        base = source.choice([0x20, 0x80, 0x300, 0x400, 0x600, 0x900, 0xE00, 0x1E00, 0x2000, 0x2190, 0x2E80, 0x3040])
        base = source.choice([base, base, source.randrange(0xD700), source.randrange(0xE000, 0x32000)])
        pieces.append("".join(chr(base + source.randrange(0x60)) for _ in range(source.randint(1, 6))))
    return source.choice(["", " "]).join(pieces)


def _damaged(source: random.Random) -> str:
    """UTF-8 with bytes lost, changed or cut, decoded as every reader of such input does: with U+FFFD."""
    everything = [sentence for sentences in SENTENCES.values() for sentence in sentences]
    data = bytearray(source.choice(everything).encode())
    for _ in range(source.randint(1, 6)):
        position = source.randrange(len(data))
        if source.random() < 0.5:
            data[position] = source.randrange(256)
        else:
            del data[position : position + 1]
            data = data or bytearray(b"\xc0\x80")
    return bytes(data[source.randrange(4) :]).decode("utf-8", "replace")


def _with_control_text(source: random.Random) -> str:
    everything = [sentence for sentences in SENTENCES.values() for sentence in sentences]
    pieces = [source.choice(everything)[:20], source.choice(CONTROL_TEXTS), source.choice(everything)[:20]]
    return source.choice(["", " "]).join(pieces)
