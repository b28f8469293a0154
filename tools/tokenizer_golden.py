"""Records llama.cpp's tokens for the test corpus, one short digest a line, in tests/text/golden/.

Run with a Python that has llama-cpp-python (the test suite needs none of it):
    python tools/tokenizer_golden.py smollm2-135m=FILE.gguf gemma3-270m=FILE.gguf ...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "text"))

from corpus import corpus_lines, digest_of_ids, digest_of_lines, rendered_lines  # noqa: E402


def record(name: str, path: str) -> None:
    vocabulary = llama_cpp.Llama(path, vocab_only=True, verbose=False)

    def digests(lines: list[str], *, parse_special: bool) -> list[str]:
        return [
            digest_of_ids(vocabulary.tokenize(line.encode(), add_bos=False, special=parse_special)) for line in lines
        ]

    text, rendered = corpus_lines(), rendered_lines()
    golden = {
        "file": Path(path).name,
        "oracle": f"llama.cpp in llama-cpp-python {llama_cpp.__version__}",
        "corpus": digest_of_lines(text + rendered),
        "text": digests(text, parse_special=False),
        "rendered": digests(rendered, parse_special=True),
    }
    target = ROOT / "tests" / "text" / "golden" / f"{name}.json"
    target.write_text(json.dumps(golden, indent=0) + "\n")
    print(f"{target.relative_to(ROOT)}: {len(text)} lines of text, {len(rendered)} rendered")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        record(*argument.split("=", 1))
