"""Choosing among the official archives, and what the release API may answer."""

from __future__ import annotations

import asyncio
import json

import pytest

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.download import Archive, make_client
from supervisor.llamacpp.release import Platform, choose_assets, find_release
from tests.llamacpp.fakes import Reply, WebServer

API = "/repos/ggml-org/llama.cpp/releases/tags/b11434"
LINUX = Platform("linux", "x86_64")

# The names that llama.cpp's release workflow gives at b11434.
NAMES = (
    "llama-b11434-bin-macos-arm64.tar.gz",
    "llama-b11434-bin-macos-x64.tar.gz",
    "llama-b11434-bin-ubuntu-x64.tar.gz",
    "llama-b11434-bin-ubuntu-arm64.tar.gz",
    "llama-b11434-bin-ubuntu-s390x.tar.gz",
    "llama-b11434-bin-ubuntu-vulkan-x64.tar.gz",
    "llama-b11434-bin-ubuntu-vulkan-arm64.tar.gz",
    "llama-b11434-bin-ubuntu-rocm-10.0-x64.tar.gz",
    "llama-b11434-bin-ubuntu-cuda-12.8-x64.tar.gz",
    "llama-b11434-bin-ubuntu-cuda-13.4-x64.tar.gz",
    "llama-b11434-bin-ubuntu-cuda-13.4-arm64.tar.gz",
    "llama-b11434-bin-ubuntu-openvino-2026.0-x64.tar.gz",
    "llama-b11434-bin-ubuntu-sycl-fp16-x64.tar.gz",
    "llama-b11434-bin-linux-arm64-snapdragon.tar.gz",
    "llama-b11434-bin-win-cpu-x64.zip",
    "llama-b11434-bin-win-cpu-arm64.zip",
    "llama-b11434-bin-win-cuda-12.4-x64.zip",
    "llama-b11434-bin-win-vulkan-x64.zip",
    "llama-b11434-bin-win-rocm-10.0-x64.zip",
    "cudart-llama-b11434-bin-ubuntu-cuda-12.8-x64.tar.gz",
    "cudart-llama-b11434-bin-ubuntu-cuda-13.4-x64.tar.gz",
    "cudart-llama-bin-win-cuda-12.4-x64.zip",
)


@pytest.mark.parametrize(
    ("platform", "backend", "expected"),
    [
        (LINUX, "cpu", ["llama-b11434-bin-ubuntu-x64.tar.gz"]),
        (Platform("linux", "aarch64"), "cpu", ["llama-b11434-bin-ubuntu-arm64.tar.gz"]),
        (LINUX, "vulkan", ["llama-b11434-bin-ubuntu-vulkan-x64.tar.gz"]),
        (LINUX, "hip", ["llama-b11434-bin-ubuntu-rocm-10.0-x64.tar.gz"]),
        (Platform("darwin", "arm64"), "metal", ["llama-b11434-bin-macos-arm64.tar.gz"]),
        (Platform("darwin", "x86_64"), "cpu", ["llama-b11434-bin-macos-x64.tar.gz"]),
        (Platform("darwin", "x86_64"), "metal", []),
        (Platform("win32", "AMD64"), "cpu", ["llama-b11434-bin-win-cpu-x64.zip"]),
        (LINUX, "cuda", []),
        (Platform("linux", "x86_64", (11, 8)), "cuda", []),
        (Platform("linux", "riscv64"), "cpu", []),
        (Platform("freebsd14", "amd64"), "cpu", []),
    ],
)
def test_the_archive_for_a_platform(platform: Platform, backend: str, expected: list[str]) -> None:
    assert list(choose_assets(NAMES, "b11434", platform, backend)) == expected


@pytest.mark.parametrize(
    ("platform", "version"),
    [
        (Platform("linux", "x86_64", (12, 2)), "ubuntu-cuda-12.8-x64.tar.gz"),
        (Platform("linux", "x86_64", (13, 0)), "ubuntu-cuda-13.4-x64.tar.gz"),
        (Platform("linux", "x86_64", (14, 0)), "ubuntu-cuda-13.4-x64.tar.gz"),
    ],
)
def test_cuda_comes_in_the_drivers_major_version_with_its_libraries(platform: Platform, version: str) -> None:
    expected = (f"llama-b11434-bin-{version}", f"cudart-llama-b11434-bin-{version}")
    assert choose_assets(NAMES, "b11434", platform, "cuda") == expected


def test_windows_names_the_cuda_libraries_without_a_tag() -> None:
    found = choose_assets(NAMES, "b11434", Platform("win32", "AMD64", (12, 9)), "cuda")
    assert found == ("llama-b11434-bin-win-cuda-12.4-x64.zip", "cudart-llama-bin-win-cuda-12.4-x64.zip")


def find(url: str) -> tuple[Archive, ...]:
    async def scenario() -> tuple[Archive, ...]:
        async with make_client({}) as client:
            return await find_release(client, url, "b11434", LINUX, "cpu")

    return asyncio.run(scenario())


def release(name: str, digest: str | None = "sha256:" + "ab" * 32) -> Reply:
    asset = {"name": name, "browser_download_url": "https://x/y", "digest": digest}
    return Reply(json.dumps({"assets": [asset]}).encode())


def test_the_api_gives_address_and_digest(site: WebServer) -> None:
    site.replies[API] = release(NAMES[2])
    assert find(site.url) == (Archive(NAMES[2], "https://x/y", "ab" * 32),)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=404), "answered 404"),
        (Reply(status=403), "answered 403"),
        (Reply(b"<html>"), "not a release"),
        (Reply(b"[]"), "not a release"),
        (release("llama-b11434-bin-macos-x64.tar.gz"), "no cpu archive for linux on x86_64"),
        (release(NAMES[2], None), "no cpu archive"),
        (release(NAMES[2], "md5:ab"), "no cpu archive"),
    ],
)
def test_what_the_api_said_is_told(site: WebServer, reply: Reply, reason: str) -> None:
    site.replies[API] = reply
    with pytest.raises(EngineInstallFailed, match=reason):
        find(site.url)


def test_nobody_there() -> None:
    with pytest.raises(EngineInstallFailed, match="not reachable"):
        find("http://127.0.0.1:1")
