"""Who is let in: the plain decision."""

from __future__ import annotations

import pytest

from supervisor.core.requests.access import AccessRules, check, is_loopback
from supervisor.core.requests.admission import admit
from supervisor.core.requests.keys import Keyring
from supervisor.errors import RequestError

OPEN = AccessRules()
KEYED = AccessRules(api_keys=("correct-horse", "battery-staple"))
LOCAL = {"host": "127.0.0.1:8686"}


def code(rules: AccessRules, headers: dict[str, str], path: str = "/v1/models", method: str = "GET") -> str | None:
    """Ask as the guard does."""
    refusal = check(rules, headers)
    if refusal is not None:
        return refusal.code
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    try:
        admit(Keyring(), rules.digests, (method, path), raw, 0.0)
    except RequestError as error:
        return error.code
    return None


@pytest.mark.parametrize("host", ["127.0.0.1:8686", "localhost", "LOCALHOST:80", "[::1]:8686", "[::1]", "127.8.9.1:1"])
def test_loopback_hosts_are_answered(host: str) -> None:
    assert code(OPEN, {"host": host}) is None


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8686", "", "192.168.1.5", "localhost.evil"])
def test_other_hosts_are_dns_rebinding(host: str) -> None:
    assert code(OPEN, {"host": host}) == "host_not_allowed"


def test_configured_hosts_are_answered() -> None:
    assert code(AccessRules(allowed_hosts=("box.lan",)), {"host": "Box.LAN:8686"}) is None


def test_a_public_listener_does_not_look_at_the_host() -> None:
    assert code(AccessRules(check_host=False), {"host": "box.example"}) is None


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:8686"])
def test_pages_of_other_origins_are_turned_away(origin: str) -> None:
    assert code(OPEN, {**LOCAL, "origin": origin}) == "origin_not_allowed"
    assert code(KEYED, {**LOCAL, "origin": origin, "authorization": "Bearer correct-horse"}) == "origin_not_allowed"
    assert code(OPEN, {**LOCAL, "origin": origin}, method="OPTIONS") == "origin_not_allowed"


def test_the_own_origin_and_configured_ones_are_let_in() -> None:
    assert code(OPEN, {**LOCAL, "origin": "http://127.0.0.1:8686"}) is None
    rules = AccessRules(allowed_origins=("http://localhost:3000",))
    assert code(rules, {**LOCAL, "origin": "http://localhost:3000"}) is None


def test_a_page_that_hides_its_origin_is_seen_by_its_fetch_metadata() -> None:
    assert code(OPEN, {**LOCAL, "sec-fetch-site": "cross-site"}) == "origin_not_allowed"
    assert code(OPEN, {**LOCAL, "sec-fetch-site": "none"}) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "unauthorized"),
        ({"authorization": "Bearer wrong"}, "unauthorized"),
        ({"authorization": "correct-horse"}, "unauthorized"),
        ({"authorization": "Basic correct-horse"}, "unauthorized"),
        ({"authorization": "Bearer correct-horse"}, None),
        ({"authorization": "bearer  battery-staple"}, None),
        ({"x-api-key": "battery-staple"}, None),
        ({"x-api-key": "battery-stapleX"}, "unauthorized"),
    ],
)
def test_keys(headers: dict[str, str], expected: str | None) -> None:
    assert code(KEYED, {**LOCAL, **headers}) == expected


def test_health_needs_no_key() -> None:
    assert code(KEYED, LOCAL, path="/health") is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("[::1]", True), ("0.0.0.0", False), ("box", False)],
)
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("192.168.1.5:8686", None), ("[fe80::1]:8686", None), ("localhost", None), ("evil.example", "host_not_allowed")],
)
def test_a_public_listener_without_keys_answers_for_addresses_only(host: str, expected: str | None) -> None:
    assert code(AccessRules(any_address=True), {"host": host}) == expected


PAGE = "https://page.example"
EVERY = AccessRules(allowed_origins=("*", "http://localhost:3000"))


@pytest.mark.parametrize("origin", [PAGE, "null", "http://localhost:3000"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models", "/v1/models/a/b", "/health"])
def test_every_page_may_have_models_answer_where_the_configuration_says_so(path: str, origin: str) -> None:
    assert code(EVERY.at(path), {**LOCAL, "origin": origin}, path) is None
    assert code(OPEN.at(path), {**LOCAL, "origin": origin}, path) == "origin_not_allowed"


MANAGED = (
    "/api/v1/status",
    "/api/v1/models",
    "/models",
    "/unload",
    "/running",
    "/upstream/m/v1/chat/completions",
    "/docs",
)


@pytest.mark.parametrize("path", [*MANAGED, "/props", "/v1/modelsx", "//v1/models", "/api/v1/../../v1/models"])
def test_what_manages_is_for_pages_by_name_alone(path: str) -> None:
    assert code(EVERY.at(path), {**LOCAL, "origin": PAGE}, path) == "origin_not_allowed"
    assert code(EVERY.at(path), {**LOCAL, "origin": "null"}, path) == "origin_not_allowed"
    assert code(EVERY.at(path), {**LOCAL, "origin": "http://localhost:3000"}, path) is None


def test_every_page_still_needs_a_key_and_a_request_that_names_its_page() -> None:
    rules = AccessRules(api_keys=("correct-horse",), allowed_origins=("*",)).at("/v1/models")
    assert code(rules, {**LOCAL, "origin": PAGE}) == "unauthorized"
    assert code(rules, {**LOCAL, "sec-fetch-site": "cross-site"}) == "origin_not_allowed"
    assert code(rules, {"host": "evil.example", "origin": PAGE}) == "host_not_allowed"
