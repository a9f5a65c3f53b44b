"""How a model of a hub may be named, and what is no such name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.repository import HubReference, parse_reference
from supervisor.errors import InvalidRequest

Ref = HubReference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/repo", Ref("owner/repo")),
        ("owner/repo-GGUF:Q4_K_M", Ref("owner/repo-GGUF", "Q4_K_M")),
        ("owner/repo:ud-q4_k_xl", Ref("owner/repo", "ud-q4_k_xl")),
        ("owner/repo@v1.0", Ref("owner/repo", revision="v1.0")),
        ("owner/repo@v1.0:Q8_0", Ref("owner/repo", "Q8_0", revision="v1.0")),
        ("owner/repo:Q8_0@v1.0", Ref("owner/repo", "Q8_0", revision="v1.0")),
        ("owner/repo@refs/pr/3:Q8_0", Ref("owner/repo", "Q8_0", revision="refs/pr/3")),
        ("owner/repo/file.gguf", Ref("owner/repo", path="file.gguf")),
        ("owner/repo/a/b/file-00001-of-00002.gguf", Ref("owner/repo", path="a/b/file-00001-of-00002.gguf")),
        ("owner/repo/file.gguf@main", Ref("owner/repo", path="file.gguf", revision="main")),
        ("owner/repo@abc123/x/f.gguf", Ref("owner/repo", path="x/f.gguf", revision="abc123")),
        ("owner/repo/BF16", Ref("owner/repo", path="BF16")),
        ("hf://owner/repo", Ref("owner/repo")),
        ("hf://owner/repo:Q4_0", Ref("owner/repo", "Q4_0")),
        ("hf://models/owner/repo@dev/f.gguf", Ref("owner/repo", path="f.gguf", revision="dev")),
        ("hf.co/owner/repo:Q4_0", Ref("owner/repo", "Q4_0")),
        ("https://huggingface.co/owner/repo", Ref("owner/repo")),
        ("https://huggingface.co/owner/repo/tree/main", Ref("owner/repo", revision="main")),
        ("https://huggingface.co/owner/repo/tree", Ref("owner/repo")),
        ("https://huggingface.co/owner/repo/tree/main/BF16", Ref("owner/repo", path="BF16", revision="main")),
        (
            "https://huggingface.co/owner/repo/resolve/v2/a/f.gguf?download=true",
            Ref("owner/repo", path="a/f.gguf", revision="v2"),
        ),
        (
            "https://huggingface.co/owner/repo/blob/refs%2Fpr%2F1/f.gguf",
            Ref("owner/repo", path="f.gguf", revision="refs/pr/1"),
        ),
        ("http://127.0.0.1:8080/owner/repo/blob/main/f.gguf", Ref("owner/repo", path="f.gguf", revision="main")),
    ],
)
def test_a_model_of_a_hub(text: str, expected: HubReference) -> None:
    assert parse_reference(text, ["127.0.0.1:8080"]) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("demo", "/abs/file.gguf", "./a/b", "~/x.gguf", "..", "owner/", "/repo", "a/b/../c.gguf", "owner/re po"),
        *("https://example.org/owner/repo", "datasets/owner/repo", "a\\b/c", "owner/repo:", "owner/repo@"),
        *("-a/b", "owner/a--b", "owner/repo//f.gguf", "a/b/f.gguf:Q4_0", "models/file.gguf", ""),
    ],
)
def test_no_model_of_a_hub(text: str) -> None:
    assert parse_reference(text) is None


@pytest.mark.parametrize("text", ["hf://", "hf://owner", "hf://datasets/a/b", "https://hf.co/owner", "hf.co/x"])
def test_what_is_meant_for_a_hub_and_malformed_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="owner/repo:Q4_K_M"):
        parse_reference(text)


KINDS = {"datasets", "spaces", "kernels", "buckets", "models"}
NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.]{0,12}[A-Za-z0-9])?", fullmatch=True).filter(
    lambda name: (
        ".." not in name and not name.endswith((".git", ".gguf")) and name not in {"datasets", "spaces", "kernels"}
    )
)
QUANTS = st.sampled_from(["Q4_K_M", "UD-Q4_K_XL", "bf16", "IQ2_XXS", "MXFP4"])


@given(NAMES, NAMES, st.none() | QUANTS, st.none() | NAMES)
def test_what_is_written_is_read_again(owner: str, repo: str, quant: str | None, revision: str | None) -> None:
    reference = HubReference(f"{owner}/{repo}", quant, None, revision)
    assert parse_reference(str(reference)) == reference
    assert parse_reference(f"hf://{reference}") == reference


@given(st.text(max_size=60))
def test_no_text_is_too_strange(text: str) -> None:
    try:
        found = parse_reference(text)
    except InvalidRequest:
        return
    assert found is None or found.repo.count("/") == 1
