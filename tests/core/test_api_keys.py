"""What a key may do, and what it has left: the plain judgement, with the clock as an argument."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.requests.admission import admit, credential
from supervisor.core.requests.keys import MOST_KEYS, Bucket, Key, Keyring, KeyRules, Usage, digest_of, matches
from supervisor.core.requests.passed import PassedKey, Tally
from supervisor.core.requests.scopes import ANY, INFER, MANAGE, READ, Row, Scope
from supervisor.errors import (
    BudgetSpent,
    Forbidden,
    InvalidRequest,
    KeyExpired,
    KeyNotFound,
    KeyRefused,
    RateLimited,
    RequestError,
    Unauthorized,
)

CHAT = ("POST", "/v1/chat/completions")
STATUS = ("GET", "/api/v1/status")
GENERATES = Row(*CHAT, INFER)
LOOKS = Row(*STATUS, READ)


def rules(name: str = "one", *scopes: str, **more: Any) -> KeyRules:
    return KeyRules(name, frozenset(map(Scope, scopes or ("infer",))), **more)


def key(text: str = "text-of-one", name: str = "one", *scopes: str, **more: Any) -> Key:
    return Key(rules(name, *scopes, **more), digest_of(text.encode()), 0.0)


def bearer(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {text}".encode())]


def code(found: RequestError | None) -> str | None:
    return None if found is None else found.code


def asked(ring: Keyring, text: str, call: tuple[str, str] = CHAT, now: float = 0.0) -> str | None:
    try:
        admit(ring, (), call, bearer(text), now)
    except RequestError as error:
        return error.code
    return None


# -- where it stands


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([(b"authorization", b"Bearer KeY")], b"KeY"),
        ([(b"authorization", b"bEARER \t KeY \t")], b"KeY"),
        ([(b"x-api-key", b"  KeY ")], b"KeY"),
        ([(b"x-api-key", b"other"), (b"authorization", b"Bearer KeY")], b"KeY"),
        ([(b"authorization", b"Basic abc"), (b"x-api-key", b"KeY")], b"KeY"),
        ([(b"authorization", b"Bearer KeY"), (b"authorization", b"Bearer KeY")], b"KeY"),
        ([(b"authorization", b"KeY")], None),
        ([(b"authorization", b"BearerKeY")], None),
        ([(b"authorization", b"Bearer ")], None),
        ([(b"x-api-key", b"")], None),
        ([(b"api-key", b"KeY"), (b"cookie", b"x-api-key=KeY")], None),
        ([], None),
    ],
)
def test_a_key_is_read_where_clients_put_it(headers: list[tuple[bytes, bytes]], found: bytes | None) -> None:
    assert credential(headers) == found


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_header_that_is_there_twice_with_different_keys_is_refused(name: bytes, order: int) -> None:
    headers = [(name, b"Bearer one"), (name, b"Bearer two")][::order]
    with pytest.raises(Unauthorized):
        credential(headers)


@pytest.mark.parametrize("text", ["text-of-on", "text-of-one1", "TEXT-OF-ONE", "", "one", "tëxt-of-one"])
def test_only_the_very_text_is_the_key(text: str) -> None:
    ring = Keyring.of([key()])
    assert asked(ring, "text-of-one") is None
    assert asked(ring, text) == "unauthorized"


def test_the_hash_of_a_key_is_no_key() -> None:
    held = key()
    assert asked(Keyring.of([held]), held.digest.hex()) == "unauthorized"


def test_without_any_key_everybody_is_let_in_and_with_one_nobody_without() -> None:
    assert admit(Keyring(), (), STATUS, [], 0.0) is None
    for ring, configured in ((Keyring.of([key()]), frozenset[bytes]()), (Keyring(), {digest_of(b"set-in-the-file")})):
        with pytest.raises(Unauthorized):
            admit(ring, configured, STATUS, [], 0.0)
        assert admit(ring, configured, ("GET", "/health"), [], 0.0) is None


def test_a_key_of_the_configuration_may_do_everything_beside_keys_that_were_added() -> None:
    ring, configured = Keyring.of([key()]), {digest_of(b"set-in-the-file")}
    for call in (CHAT, STATUS, ("POST", "/api/v1/shutdown"), ("GET", "/nowhere")):
        assert admit(ring, configured, call, bearer("set-in-the-file"), 0.0) is None


def test_a_path_that_is_in_no_row_is_not_there_for_who_may_not_manage() -> None:
    ring = Keyring.of([key("a", "a", "infer", "read"), key("b", "b", "manage")])
    assert asked(ring, "a", ("GET", "/nowhere")) == "route_not_found"
    assert asked(ring, "b", ("GET", "/nowhere")) is None


# -- time and scope


def test_a_key_is_of_no_use_from_its_last_moment_on_and_opens_no_door() -> None:
    ring = Keyring.of([key(expires_at=100.0)])
    assert [asked(ring, "text-of-one", now=now) for now in (99.9, 100.0, 1e9)] == [None, "key_expired", "key_expired"]
    with pytest.raises(Unauthorized):
        admit(ring, (), CHAT, [], 1e9)
    assert isinstance(key(expires_at=1.0).ended(1.0), KeyExpired)


def test_what_is_refused_for_scope_or_time_is_not_counted() -> None:
    held = key(expires_at=10.0, requests_per_minute=1)
    assert code(held.enter(LOOKS, 0.0)) == "forbidden"
    assert code(held.enter(GENERATES, 10.0)) == "key_expired"
    assert held.enter(GENERATES, 0.0) is None
    assert held.usage == Usage(requests=1)


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("infer", {"infer", "any"}), ("read", {"read", "any"}), ("manage", {"manage", "read", "any"})],
)
def test_a_scope_opens_its_rows_alone_and_who_manages_may_look(scope: str, allowed: set[str]) -> None:
    rows = {"infer": INFER, "manage": MANAGE, "read": READ, "any": ANY}
    held = key("t", "n", scope)
    assert {name for name, scopes in rows.items() if held.may(Row("GET", "/", scopes)) is None} == allowed


def test_what_tells_of_all_models_is_not_for_a_key_that_sees_some() -> None:
    row = Row("GET", "/api/v1/disk", READ, all_models=True)
    assert isinstance(key("t", "n", "read", models=("*",)).may(row), Forbidden)
    assert key("t", "n", "read").may(row) is None


# -- models


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("qwen", "qwen", True),
        ("qwen", "Qwen", False),
        ("qwen", "qwen3", False),
        ("qwen*", "qwen3-8b", True),
        ("qwen*", "a-qwen", False),
        ("*", "", True),
        ("*-8b", "qwen3-8b", True),
        ("*-8b", "qwen3-8b-it", False),
        ("a*a", "a", False),  # the same letter does not count twice
        ("a*a", "aa", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("owner/*:Q4_K_M", "owner/repo:Q4_K_M", True),
        ("q.en", "qwen", False),
        ("[q]wen", "qwen", False),
        ("q?en", "qwen", False),
        ("*a*a*a*a*a*a*a*a*a*a*b", "a" * 512, False),
    ],
)
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert matches(pattern, text) is fits


def test_a_key_without_patterns_sees_all_models_and_one_with_them_those() -> None:
    assert rules().sees("anything")
    some = rules(models=("a", "b*"))
    assert [some.sees(model) for model in ("a", "b2", "c", "a2")] == [True, True, False, False]


# -- rates


def test_a_bucket_begins_full_fills_evenly_and_never_beyond_its_size() -> None:
    bucket = Bucket(60)
    for _ in range(60):
        assert bucket.wait(0.0) == 0
        bucket.take(1)
    assert bucket.wait(0.0) == 1.0
    assert bucket.wait(0.5) == 0.5
    assert bucket.wait(1.0) == 0
    assert bucket.wait(1e6) == 0
    bucket.take(60)
    assert bucket.wait(1e6) > 0


def test_a_bucket_of_one_a_minute_tells_how_long_to_wait() -> None:
    bucket = Bucket(1)
    bucket.wait(0.0)
    bucket.take(1)
    assert bucket.wait(15.0) == pytest.approx(45.0)


def test_a_clock_that_is_set_back_fills_no_bucket_and_empties_none() -> None:
    bucket = Bucket(60)
    bucket.wait(1000.0)
    bucket.take(60)
    assert bucket.wait(0.0) == 1.0
    assert bucket.wait(1.0) == 0


def test_the_requests_of_one_key_are_not_those_of_another_of_the_same_rules() -> None:
    ring = Keyring.of([key("a", "a", requests_per_minute=2), key("b", "b", requests_per_minute=2)])
    assert [asked(ring, "a") for _ in range(3)] == [None, None, "rate_limited"]
    assert [asked(ring, "b") for _ in range(3)] == [None, None, "rate_limited"]
    assert asked(ring, "a", now=30.0) is None


def test_a_request_that_is_turned_away_does_not_make_the_wait_longer() -> None:
    held = key(requests_per_minute=1)
    assert held.enter(GENERATES, 0.0) is None
    waits = [held.enter(GENERATES, now) for now in (0.0, 20.0, 40.0)]
    assert [one.retry_after for one in waits if isinstance(one, RateLimited)] == pytest.approx([60.0, 40.0, 20.0])
    assert held.usage.requests == 1


def test_tokens_a_minute_are_overdrawn_by_an_answer_and_then_have_to_fill() -> None:
    held = key("t", "n", "infer", "read", tokens_per_minute=60)
    assert held.enter(GENERATES, 0.0) is None
    held.spend(100, 20)  # twice as much as there was
    refusal = held.enter(GENERATES, 0.0)
    assert isinstance(refusal, RateLimited)
    assert refusal.retry_after == pytest.approx(61.0)
    assert held.enter(LOOKS, 0.0) is None  # which takes no token
    assert code(held.enter(GENERATES, 60.9)) == "rate_limited"
    assert held.enter(GENERATES, 61.1) is None


def test_a_budget_is_spent_for_good_and_counts_prompt_and_completion() -> None:
    held = key("t", "n", "infer", "read", token_budget=100)
    held.spend(60, 39)
    assert held.enter(GENERATES, 0.0) is None
    held.spend(1, 0)
    assert isinstance(held.enter(GENERATES, 1e9), BudgetSpent)
    assert held.enter(LOOKS, 0.0) is None
    assert held.usage == Usage(2, 61, 39)


# -- the ring


def test_a_name_is_exactly_one_key_s() -> None:
    ring = Keyring.of([key("a", "bot"), key("b", "bot2"), key("c", "Bot")])
    ring.revoke(ring.named("bot"), 5.0)
    assert [asked(ring, text) for text in "abc"] == ["unauthorized", None, None]
    for name in ("bot", "BOT", "bo", ""):
        with pytest.raises(KeyNotFound):
            ring.named(name)


def test_a_revoked_key_is_shown_with_what_it_used_and_its_name_is_free() -> None:
    ring = Keyring.of([key("m", "m", "manage"), key("a", "a")])
    ring.named("a").spend(1, 2)
    ring.revoke(ring.named("a"), 5.0)
    assert [(one.rules.name, one.revoked_at, one.usage.tokens) for one in ring] == [("m", None, 0), ("a", 5.0, 3)]
    ring.check(rules("a"), configured=False)
    ring.put(key("new", "a"))
    assert (asked(ring, "a"), asked(ring, "new"), len(ring.keys)) == ("unauthorized", None, 2)


def test_revoked_keys_that_are_read_from_the_file_are_of_no_use() -> None:
    old = Key(rules("a"), digest_of(b"a"), 0.0, revoked_at=5.0)
    ring = Keyring.of([old, key("b", "b")])
    assert (asked(ring, "a"), asked(ring, "b")) == ("unauthorized", None)
    assert not Keyring.of([old]).asks
    assert isinstance(old.ended(0.0), Unauthorized)


def test_a_rotation_ends_the_old_text_and_keeps_rules_usage_and_rate() -> None:
    ring = Keyring.of([key("old", "a", requests_per_minute=1)])
    assert asked(ring, "old") is None
    held = ring.named("a")
    held.spend(3, 4)
    ring.rotate(held, digest_of(b"new"), 9.0)
    assert asked(ring, "old") == "unauthorized"
    assert asked(ring, "new") == "rate_limited"  # as the old one would be
    assert (held.usage, held.rotated_at) == (Usage(1, 3, 4), 9.0)


def test_a_taken_name_is_refused() -> None:
    ring = Keyring.of([key("m", "m", "manage")])
    with pytest.raises(KeyRefused):
        ring.check(rules("m", "infer"), configured=True)


@pytest.mark.parametrize("more", [{}, {"scopes": ("manage",), "expires_at": 5.0}])
def test_the_first_key_must_be_able_to_manage_for_ever(more: dict[str, Any]) -> None:
    wanted = rules("a", *more.pop("scopes", ("infer", "read")), **more)
    with pytest.raises(KeyRefused):
        Keyring().check(wanted, configured=False)
    Keyring().check(wanted, configured=True)
    Keyring.of([key("m", "m", "manage")]).check(wanted, configured=False)
    with pytest.raises(KeyRefused):
        Keyring.of([Key(rules("m", "manage"), b"", 0.0, revoked_at=1.0)]).check(wanted, configured=False)


def test_the_last_key_that_manages_goes_last() -> None:
    ring = Keyring.of([key("m", "m", "manage"), key("n", "n", "manage", expires_at=9.0), key("a", "a")])
    with pytest.raises(KeyRefused):
        ring.check_revocation(ring.named("m"), configured=False)
    ring.check_revocation(ring.named("m"), configured=True)
    for name in ("n", "a", "m"):
        ring.check_revocation(ring.named(name), configured=False)
        ring.revoke(ring.named(name), 1.0)
    assert not ring.asks


def test_a_key_that_manages_sees_all_models() -> None:
    with pytest.raises(InvalidRequest):
        Keyring().check(rules("a", "manage", models=("x",)), configured=True)


def test_of_very_many_keys_the_one_that_was_revoked_first_makes_room() -> None:
    ring = Keyring.of(key(str(number), f"k{number}") for number in range(MOST_KEYS))
    with pytest.raises(KeyRefused):
        ring.check(rules("more"), configured=True)
    for name, at in (("k7", 20.0), ("k5", 10.0)):
        ring.revoke(ring.named(name), at)
    ring.check(rules("more"), configured=True)
    ring.put(key("more", "more"))
    assert ("k5" in ring.keys, "k7" in ring.keys, len(ring.keys)) == (False, True, MOST_KEYS)


def test_a_key_that_is_passed_on_has_what_was_left_of_its_tokens_and_pays_for_all_that_use_it() -> None:
    home = key(token_budget=100, tokens_per_minute=60)
    home.spend(30, 10)
    assert home.left(0.0) == (60, 20.0)
    assert key().left(0.0) == (None, None)
    tally = Tally()
    left, minute = home.left(0.0)
    first, second = (PassedKey(rules(token_budget=left, tokens_per_minute=60), tally, 0, minute) for _ in range(2))
    assert first.may_generate(0.0) is None
    first.spend(15, 10)
    assert first.usage == Usage(0, 15, 10)
    assert second.usage == Usage()
    assert code(second.may_generate(0.0)) == "rate_limited"  # the first has taken more than there was
    assert second.may_generate(10.0) is None
    first.spend(30, 5)
    assert code(second.may_generate(600.0)) == "budget_spent"
    before = PassedKey(rules(token_budget=20), tally, 0)  # of what the first has taken its node knows nothing yet
    assert code(before.may_generate(0.0)) == "budget_spent"
    assert PassedKey(rules(token_budget=20), tally, tally.tokens).may_generate(0.0) is None
    assert code(PassedKey(rules(token_budget=0), tally, tally.tokens).may_generate(0.0)) == "budget_spent"
