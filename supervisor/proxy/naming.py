"""The model that a request means: the one that it names, or the only one there is to mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.requests.keys import Key
from supervisor.core.requests.scopes import needed
from supervisor.errors import InvalidRequest, ModelNotFound

_MODEL = "model"
_LOADING = needed("POST", "/api/v1/models/load")


Added = Callable[[str], Awaitable[str | None]]
"""Adds the model of a name that nobody knows yet, and returns its id; None where there is none to add."""


async def _none(_name: str) -> None:
    return None


@dataclass(frozen=True)
class Naming:
    """What models there are to mean.

    loaded: ids of the models that have an engine. default: `server.default_model`. add: see `Added`.
    """

    registry: Registry
    loaded: Callable[[], Collection[str]]
    default: Callable[[], str | None]
    add: Added = _none

    async def wanted(self, named: object, query: bytes = b"", key: Key | None = None) -> ModelEntry:
        """Return the model that a request means, as `entry` does, and add it where that is to be done.

        A key that may not load models does not make one be added, nor does one that sees only some. Raises as `entry`,
        and what adding it does.
        """
        try:
            return self.entry(named, query, key)
        except ModelNotFound:
            if key is not None and (key.rules.models or key.may(_LOADING) is not None):
                raise
            name = (named if isinstance(named, str) else "") or split_query(query)[0] or self.default()
            added = await self.add(name) if name else None
            if added is None:
                raise
            return self.registry.find(added)

    def entry(self, named: object, query: bytes = b"", key: Key | None = None) -> ModelEntry:
        """Return the model that the body names, else the query, else the default.

        Args:
            named: the body's `model`; None or an empty text is no name.
            query: of the request's target, percent-encoded.
            key: of the request; what it does not see is not there.

        Raises InvalidRequest where none is named and several could be meant, ModelNotFound.
        """
        if named is not None and not isinstance(named, str):
            raise InvalidRequest("`model` must be a text: a model's id or alias.", param=_MODEL)
        name = named or split_query(query)[0]
        if key is not None and name:
            entry = self.registry.get(name)
            if entry is not None and key.rules.sees(entry.id):
                return entry
        registry = seen_by(key, self.registry)
        return self._unnamed(registry) if not name else registry.meant(name)

    def _unnamed(self, registry: Registry) -> ModelEntry:
        default = self.default()
        if default is not None and (registry is self.registry or default in registry):
            entry = registry.get(default)
            if entry is None:
                raise ModelNotFound(
                    f"The request names no model, and there is no '{default}', which server.default_model names.",
                    param=_MODEL,
                )
            return entry
        only = registry.only(self.loaded())
        if only is None:
            raise InvalidRequest(
                "Name a model in `model`; GET /v1/models lists them. server.default_model names one for requests "
                "that name none.",
                param=_MODEL,
            )
        return only


def seen_by(key: Key | None, registry: Registry) -> Registry:
    """Return the models that are there for a key."""
    return registry if key is None or not key.rules.models else registry.limited(key.rules.sees)


def split_query(query: bytes) -> tuple[str, str]:
    """Return the `model` of a query, empty where it has none, and the query without it."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    name = next((value for key, value in pairs if key == _MODEL), "")
    return name, urlencode([(key, value) for key, value in pairs if key != _MODEL])
