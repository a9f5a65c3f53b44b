"""The model of the benchmarks: answers `endless` for ever, as fast as an engine can; embeddings work too."""

from __future__ import annotations

import random
import string
from pathlib import Path

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Reply, Script

_CHARACTERS = 600  # of the text that repeats: pieces of 4 to 5 characters, as long as real tokens


def make_model(path: Path) -> None:
    """Write it; the same bytes every time."""
    letters = random.Random(1)
    text = "".join(letters.choice(string.ascii_letters + string.digits + " ") for _ in range(_CHARACTERS))
    script = Script(name="bench", default="Hello.", replies=(Reply("endless", text, endless=True),))
    write_scripted_gguf(path, script)
