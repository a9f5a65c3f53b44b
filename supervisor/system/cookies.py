"""A jar for the clients of servers that need not know us again."""

from __future__ import annotations

from http.cookiejar import CookieJar


class NoCookies(CookieJar):
    """A jar that stays empty: what a server has kept in it has no bound, and goes along with every request."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Take none."""
