"""Browsers and what they tell of themselves."""

from __future__ import annotations

import pytest

from supervisor.core.requests.browsers import from_browser, from_unknown_page

FIREFOX = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"}


@pytest.mark.parametrize(
    ("headers", "browser", "unknown"),
    [
        ({}, False, False),
        ({"user-agent": "curl/8.5.0"}, False, False),
        (FIREFOX, True, True),
        ({**FIREFOX, "sec-fetch-site": "none"}, True, False),
        ({**FIREFOX, "sec-fetch-site": "same-origin"}, True, False),
        ({**FIREFOX, "origin": "http://127.0.0.1:8686"}, True, False),
        ({**FIREFOX, "authorization": "Bearer none"}, True, False),
        ({"sec-fetch-site": "none"}, True, False),
        ({"origin": "http://127.0.0.1:8686"}, True, False),
    ],
)
def test_a_browser_is_known_by_its_headers(headers: dict[str, str], browser: bool, unknown: bool) -> None:
    assert (from_browser(headers), from_unknown_page(headers)) == (browser, unknown)
