"""Coverage-guided fuzzing of the GGUF reader with atheris.

    pip install atheris
    PYTHONPATH=src:tests python tests/fuzz/fuzz_gguf.py -max_total_time=300 FOUND tests/fuzz/corpus/gguf

New inputs go to the folder FOUND, crashing ones to the working folder. Keep the latter in the corpus, with a fix.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["roofline"]):
    from support.fuzz_targets import try_gguf

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        atheris.Setup(sys.argv, lambda content: try_gguf(content, Path(folder)))
        atheris.Fuzz()
