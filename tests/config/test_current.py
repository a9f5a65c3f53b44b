"""The settings in force, and what is made of them."""

from __future__ import annotations

from supervisor.config import Settings
from supervisor.config.current import Current
from supervisor.config.settings import ServerSettings


def test_a_view_is_made_once_for_each_settings() -> None:
    made: list[int] = []

    def port(settings: Settings) -> int:
        made.append(settings.server.port)
        return settings.server.port

    current = Current(Settings(server=ServerSettings(port=1)))
    view = current.view(port)
    assert (view(), view(), made) == (1, 1, [1])
    current.take_over(Settings(server=ServerSettings(port=2)))
    assert (view(), view(), made) == (2, 2, [1, 2])
    assert current.settings.server.port == 2
