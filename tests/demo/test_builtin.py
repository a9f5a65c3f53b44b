"""The file of the built-in model."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from supervisor.core.gguf import read_header
from supervisor.demo.builtin import demo_file_name, ensure_demo_model
from supervisor.demo.texts import DEMO
from supervisor.system.owned import MARKER

_MEGABYTE = 1_000_000


def test_the_header_says_what_the_engine_needs(demo_model: Path) -> None:
    with demo_model.open("rb") as stream:
        header = read_header(stream)
    assert (header.architecture, header.name, header.n_ctx_train, header.pooling_type) == ("llama", "demo", 32768, 1)
    assert header.chat_template is not None
    assert demo_model.stat().st_size <= _MEGABYTE


def test_it_is_made_once(tmp_path: Path) -> None:
    made = ensure_demo_model(tmp_path / "not" / "there")
    before = made.stat().st_mtime_ns
    assert ensure_demo_model(made.parent) == made
    assert made.stat().st_mtime_ns == before
    assert {entry.name for entry in made.parent.iterdir()} == {MARKER, demo_file_name()}


def test_several_may_make_it_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(ensure_demo_model, [tmp_path] * 8))
    assert len(paths) == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {MARKER, demo_file_name()}


def test_the_same_script_gives_the_same_bytes_in_another_process(tmp_path: Path, demo_model: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from supervisor.demo.builtin import ensure_demo_model; "
        "print(ensure_demo_model(Path(sys.argv[1])))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    output = subprocess.run([sys.executable, "-c", code, tmp_path], env=env, check=True, capture_output=True, text=True)
    other = Path(output.stdout.strip())
    assert other.name == demo_model.name
    assert other.read_bytes() == demo_model.read_bytes()


def test_every_word_is_explained_by_the_model_and_in_the_docs() -> None:
    told = next(reply.text for reply in DEMO.replies if reply.word == "words")
    page = (Path(__file__).parents[2] / "docs" / "built-in-model.md").read_text()
    for reply in DEMO.replies:
        assert f"`{reply.word}`" in page
        assert reply.word in told or reply.word == "words"
