"""What a `source` names."""

from __future__ import annotations

import pytest

from supervisor.config.settings import ModelSettings
from supervisor.config.sources import kind_of, path_of, repo_of


@pytest.mark.parametrize(
    ("source", "reference"),
    [
        ("owner/repo", "owner/repo"),
        ("owner/repo:Q4_K_M", "owner/repo:Q4_K_M"),
        ("owner/repo@v1:Q4_K_M", "owner/repo@v1:Q4_K_M"),
        ("hf://owner/repo/sub/m-Q4_0.gguf", "owner/repo/sub/m-Q4_0.gguf"),
        ("https://huggingface.co/owner/repo/blob/main/m.gguf", "owner/repo@main/m.gguf"),
        ("hf.co/owner/repo:q8_0", "owner/repo:q8_0"),
    ],
)
def test_a_repository(source: str, reference: str) -> None:
    model = ModelSettings(source=source)
    assert (kind_of(source), repo_of(model), path_of(model)) == ("repo", reference, None)


@pytest.mark.parametrize("source", ["./owner/repo", "owner/repo/m.gguf", "/m.gguf", "~/folder", "C:\\m.gguf"])
def test_a_path(source: str) -> None:
    model = ModelSettings(source=source)
    assert (kind_of(source), repo_of(model), path_of(model)) == ("path", None, source)


@pytest.mark.parametrize("source", ["word", "hf://", "https://example.org/owner/repo", "a/b:", "datasets/owner"])
def test_nothing(source: str) -> None:
    assert kind_of(source) is None
