"""The file of keys: private, whole, without any key's text; one that cannot be read opens nothing."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from supervisor.core.requests.keys import Key, KeyRules, Usage, digest_of
from supervisor.core.requests.scopes import Scope
from supervisor.errors import KeyRefused, KeysUnusable, RequestError, Unauthorized
from supervisor.service.keys import Keys
from supervisor.store.keyfile import KeyFile, record_of

CHAT = ("POST", "/v1/chat/completions")
FULL = KeyRules("full", frozenset(Scope))
SOME = KeyRules("some", frozenset({Scope.INFER}), ("a*", "b"), 1e10, 5, 6, 7)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.json"


def keys_of(file: Path) -> Keys:
    texts = iter(f"text-{number}" for number in range(100))
    return Keys(KeyFile(file), clock=lambda: 1000.0, make_text=lambda: next(texts))


def code(keys: Keys, text: str) -> str | None:
    try:
        keys.admit((), CHAT, [(b"x-api-key", text.encode())])
    except RequestError as error:
        return error.code
    return None


def test_everything_about_a_key_is_there_again(file: Path) -> None:
    key = Key(SOME, digest_of(b"text"), 5.0, Usage(1, 2, 3), rotated_at=6.0, revoked_at=7.0)
    KeyFile(file).write([record_of(key)])
    (found,) = KeyFile(file).read()
    assert (found.rules, found.digest, found.usage) == (key.rules, key.digest, key.usage)
    assert (found.created_at, found.rotated_at, found.revoked_at) == (5.0, 6.0, 7.0)


def test_the_file_is_its_owner_s_alone_and_has_no_text_of_a_key(file: Path) -> None:
    async def go() -> list[str]:
        keys = keys_of(file)
        texts = [(await keys.add(FULL))[1], (await keys.add(SOME))[1], (await keys.rotate("some"))[1]]
        await keys.revoke("some")
        return texts

    old = os.umask(0)
    try:
        texts = asyncio.run(go())
    finally:
        os.umask(old)
    assert file.stat().st_mode & 0o077 == 0
    content = file.read_text()
    assert texts == ["text-0", "text-1", "text-2"]
    assert not any(text in content for text in texts)
    assert json.loads(content)["keys"][0]["sha256"] == digest_of(b"text-0").hex()


def test_a_new_text_is_long_and_never_the_same(file: Path) -> None:
    async def go() -> list[str]:
        keys = Keys(KeyFile(file))
        return [(await keys.add(FULL))[1], (await keys.rotate("full"))[1]]

    first, second = asyncio.run(go())
    assert first != second
    assert min(len(first), len(second)) >= 47  # a prefix and 256 bits


def test_keys_revocations_rotations_and_usage_outlive_the_daemon(file: Path) -> None:
    async def go() -> None:
        keys = keys_of(file)
        for rules in (FULL, SOME, KeyRules("gone", frozenset({Scope.INFER}))):
            await keys.add(rules)
        await keys.rotate("some")
        await keys.revoke("gone")
        found = keys.admit((), CHAT, [(b"x-api-key", b"text-3")])
        assert found is not None
        found.spend(2, 1)
        await keys.flush()

    asyncio.run(go())
    again = keys_of(file)
    assert [code(again, f"text-{number}") for number in range(4)] == [None, "unauthorized", "unauthorized", None]
    shown = {one.name: one for one in again.all()}
    assert (shown["gone"].state, shown["some"].state, shown["some"].rotated_at) == ("revoked", "active", 1000.0)
    assert (shown["some"].usage.prompt_tokens, shown["some"].usage.completion_tokens) == (2, 1)
    assert shown["some"].usage.requests == 2  # with the one that was asked just now


def test_an_error_does_not_print_the_file(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\xff" * 100_000)
    with pytest.raises(KeysUnusable) as raised:
        keys_of(file)
    assert len(raised.value.message) < 600


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no JSON",
        "[]",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": [{"name": "a"}]}',
        '{"version": 1, "keys": {}}',
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_and_stays(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(KeysUnusable, match=r"keys\.json"):
        keys_of(file)
    assert file.read_text() == content


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scopes", ["root"]),
        ("sha256", "ab"),
        ("models", [1]),
        ("token_budget", -1),
        ("usage", [1, 2, 3, 4]),
        ("expires_at", "soon"),
        ("expires_at", float("nan")),
        pytest.param("created_at", 10**400, id="created_at-huge"),
        ("usage", [1, 2, float("inf")]),
    ],
)
def test_a_key_that_is_not_understood_is_not_left_out(file: Path, field: str, value: object) -> None:
    record = {**record_of(Key(SOME, digest_of(b"text"), 5.0)), field: value}
    KeyFile(file).write([record])
    with pytest.raises(KeysUnusable):
        KeyFile(file).read()


def test_what_cannot_be_written_down_is_not_handed_out_but_a_key_is_revoked_all_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> Keys:
        keys = keys_of(file)
        await keys.add(FULL)
        await keys.add(SOME)
        monkeypatch.setattr(KeyFile, "write", _full_disk)
        for change in (keys.add(KeyRules("more", frozenset({Scope.INFER}))), keys.rotate("some"), keys.revoke("some")):
            with pytest.raises(KeysUnusable):
                await change
        await keys.flush()  # which says it in the log
        return keys

    keys = asyncio.run(go())
    assert [code(keys, f"text-{number}") for number in range(4)] == [
        None,
        "unauthorized",
        "unauthorized",
        "unauthorized",
    ]
    assert [one.name for one in keys.all()] == ["full", "some"]


def _full_disk(*_: object) -> None:
    raise KeysUnusable("no room")


def test_a_rotation_that_fails_leaves_the_old_text(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> Keys:
        keys = keys_of(file)
        await keys.add(FULL)
        monkeypatch.setattr(KeyFile, "write", _full_disk)
        with pytest.raises(KeysUnusable):
            await keys.rotate("full")
        return keys

    keys = asyncio.run(go())
    assert (code(keys, "text-0"), code(keys, "text-1")) == (None, "unauthorized")


def test_keys_that_are_added_at_once_do_not_undo_each_other(file: Path) -> None:
    async def go() -> list[object]:
        keys = keys_of(file)
        await keys.add(FULL)
        wanted = [KeyRules("twin", frozenset({Scope.INFER})) for _ in range(2)]
        more = [KeyRules(f"k{number}", frozenset({Scope.INFER})) for number in range(5)]
        return list(await asyncio.gather(*map(keys.add, [*wanted, *more]), return_exceptions=True))

    found = asyncio.run(go())
    assert [type(one) for one in found].count(KeyRefused) == 1
    assert {key.rules.name for key in KeyFile(file).read()} == {"full", "twin", *(f"k{number}" for number in range(5))}


def test_without_a_file_there_is_no_key_and_nothing_is_written_until_there_is(file: Path) -> None:
    keys = keys_of(file)
    assert keys.admit((), CHAT, []) is None
    asyncio.run(keys.flush())
    assert not file.exists()
    asyncio.run(keys.add(FULL))
    with pytest.raises(Unauthorized):
        keys.admit((), CHAT, [])
