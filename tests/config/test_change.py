"""Options are written into a configuration file, and nothing else of it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.config.change import with_options, write_options
from supervisor.config.load import load_settings
from supervisor.errors import ConfigError

FILE = """# mine
models:
  one:   # the first
    source: "owner/repo:Q4_0"   # quoted
    threads: 2
  two: {file: /m.gguf}
defaults:
  ttl: 10m
"""


def test_comments_order_and_spellings_stay() -> None:
    found = with_options(FILE, "one", {}, {"threads": 4, "cache_type_k": "q8_0"})
    assert found == FILE.replace("    threads: 2\n", "    threads: 4\n    cache_type_k: q8_0\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "models:\n", "defaults:\n  ttl: 5\n"])
def test_a_model_that_is_not_there_is_added(text: str, tmp_path: Path) -> None:
    file = tmp_path / "supervisor.yaml"
    file.write_text(text)
    file.chmod(0o640)
    write_options(file, {}, "a/b:Q4_0", {"source": "a/b:Q4_0"}, {"ubatch_size": 1024})
    assert file.read_text().endswith("a/b:Q4_0:\n    source: a/b:Q4_0\n    ubatch_size: 1024\n")
    assert file.read_text().startswith(text)
    assert file.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["supervisor.yaml"]


def test_names_are_no_references_and_a_link_stays_one(tmp_path: Path) -> None:
    """A file's name may come from elsewhere: it must not bring a variable's value into what clients are shown."""
    (tmp_path / "real.yaml").write_text(FILE)
    link = tmp_path / "supervisor.yaml"
    link.symlink_to("real.yaml")
    write_options(link, {"TOKEN": "secret"}, "m", {"file": "/${env.TOKEN}.gguf"}, {"chat_template": "$${a} ${b}"})
    found = load_settings(link, {"TOKEN": "secret"}).models["m"].model_dump()
    assert (found["file"], found["chat_template"]) == ("/${env.TOKEN}.gguf", "$${a} ${b}")
    assert link.is_symlink()


@pytest.mark.parametrize(("text", "options"), [("models: [1]\n", {}), ("a: [\n", {}), (FILE, {"threads": "many"})])
def test_what_would_be_no_configuration_is_not_written(text: str, options: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "supervisor.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        write_options(file, {}, "one", {}, options)
    assert file.read_text() == text
    assert [one.name for one in tmp_path.iterdir()] == ["supervisor.yaml"]
