"""The settings in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from supervisor.config.settings import Settings

T = TypeVar("T")


class Current:
    """The settings in force. A reload puts others in their place, all at once.

    Whoever needs a setting that may change is built with a view, and asks it whenever the setting counts. So nobody
    has to be told of a reload.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def settings(self) -> Settings:
        """The settings in force now."""
        return self._settings

    def take_over(self, settings: Settings) -> None:
        """Put these in force."""
        self._settings = settings

    def view(self, made: Callable[[Settings], T]) -> Callable[[], T]:
        """Return a function that gives what `made` makes of the settings in force, made once for each of them."""
        held = (self._settings, made(self._settings))

        def now() -> T:
            nonlocal held
            settings, value = held  # one pair, so that threads may ask
            if settings is not self._settings:
                settings = self._settings
                held = settings, value = settings, made(settings)
            return value

        return now
