"""What a binary prints about itself, read from captured output."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.capabilities import (
    Version,
    assemble,
    library_backends,
    parse_device_backends,
    parse_help,
    parse_version,
)

DATA = Path(__file__).parent.parent / "llamacpp" / "data"


def read(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_version_of_a_captured_build() -> None:
    text = "version: 0.6.0-dev (build 11434, commit unknown)"
    assert parse_version(read("version-b11434.txt")) == Version(11434, None, text)


@pytest.mark.parametrize(
    ("text", "build", "commit"),
    [
        ("version: 5620 (abcdef12)\nbuilt with cc", 5620, "abcdef12"),
        ("ggml_cuda_init: found 1 device\nversion: 0.6.0 (build 9, commit 1a2b)\n", 9, "1a2b"),
        ("version: 0 (unknown)", None, None),
        ("version: 0.6.0-dev (build 0, commit unknown)", None, None),
        ("version: next", None, None),
        ("nginx/1.25", None, None),
    ],
)
def test_versions_of_other_builds(text: str, build: int | None, commit: str | None) -> None:
    found = parse_version(text)
    assert (found.build, found.commit) == (build, commit)


def test_help_of_a_captured_build() -> None:
    flags = parse_help(read("help-b11434.txt"))
    assert {"-h", "--help", "--usage", "-c", "--ctx-size", "--log-jsonl", "-fit", "--no-warmup"} <= flags.keys()
    assert not any(flag.endswith((",", ".")) for flag in flags)
    assert len(flags) > 400


def test_help_of_an_older_build_is_indented() -> None:
    text = "usage: server [options]\n\n  -h, --help            show this\n  -c N, --ctx-size N    see --help\n"
    assert parse_help(text + " " * 26 + "-1 = all") == {"-h": 0, "--help": 0, "-c": 1, "--ctx-size": 1}


def test_descriptions_are_no_flags() -> None:
    assert parse_help("--keep N      number to keep\n" + " " * 40 + "--not-a-flag is only mentioned") == {"--keep": 1}


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        *(("-h", 0), ("--no-kv-offload", 0), ("-kvo", 0), ("--no-models-autoload", 0), ("--spec-default", 0)),
        *(("-c", 1), ("--flash-attn", 1), ("--cpu-strict", 1), ("--split-mode", 1), ("--hf-repo", 1), ("--poll", 1)),
        *(("-ot", 1), ("-l", 1), ("--spec-type", 1), ("-Cr", 1), ("--tensor-split", 1), ("--lora-scaled", 1)),
        ("--control-vector-layer-range", 2),
    ],
)
def test_how_many_values_an_option_of_a_captured_build_takes(flag: str, values: int) -> None:
    assert parse_help(read("help-b11434.txt"))[flag] == values


@pytest.mark.parametrize(
    ("text", "backends"),
    [
        (read("devices-b11434-cpu.txt"), set()),
        ("Available devices:\n  CUDA0: NVIDIA H200 (143167 MiB, 142667 MiB free)\n", {"cuda"}),
        ("Available devices:\n  RPC0: RPC[host:1] (1 MiB, 1 MiB free)\n", {"rpc"}),
        ("  ROCm0: AMD Radeon (16 MiB, 16 MiB free)\n  Vulkan1: Intel (8 MiB, 8 MiB free)\n", {"hip", "vulkan"}),
        ("  MTL0: Apple M3 (8 MiB, 8 MiB free)\n", {"metal"}),
    ],
)
def test_backends_from_devices(text: str, backends: set[str]) -> None:
    assert parse_device_backends(text) == backends


def test_backends_from_libraries() -> None:
    names = ["libggml-base.so.0", "libggml-cpu-haswell.so", "libggml-cuda.so.0.26.0", "ggml-vulkan.dll", "libggml.so",
             "libggml-metal.0.9.4.dylib", "libllama.so", "llama-server"]  # fmt: skip
    assert library_backends(names) == {"cpu", "cuda", "vulkan", "metal"}


def test_every_build_has_the_cpu() -> None:
    found = assemble(Version(1, None, "version: 1"), {"--model": 1}, frozenset({"vulkan"}))
    assert found.backends == ("cpu", "vulkan")
    assert found.supports("--model")
    assert not found.supports("--modell")


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_version(text)
    parse_device_backends(text)
    assert all(flag.startswith("-") for flag in parse_help(text))
