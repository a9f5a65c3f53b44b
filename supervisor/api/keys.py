"""`/api/v1/keys`: the API keys, for keys with the scope `manage`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from supervisor.api.described import shaped
from supervisor.api.services import KeysOf
from supervisor.config.base import Moment, Positive, Strict, TokenBudget
from supervisor.core.requests.keys import KeyRules
from supervisor.core.requests.scopes import Scope
from supervisor.service.keys import KeyStatus

router = APIRouter(prefix="/api/v1/keys")

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
KeyName = Annotated[str, Field(min_length=1, max_length=64, pattern=_NAME)]
Named = Annotated[str, Path(max_length=64)]
ModelPattern = Annotated[str, Field(min_length=1, max_length=512)]


class NewKey(Strict):
    """A key to add: `models` are patterns of ids, in which `*` stands for any text; `expires_at` is in seconds."""

    name: KeyName
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1, max_length=len(Scope))] = (Scope.INFER,)
    models: Annotated[tuple[ModelPattern, ...], Field(max_length=256)] = ()
    expires_at: Moment | None = None
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    token_budget: TokenBudget | None = None

    def rules(self) -> KeyRules:
        """Return what the key may do."""
        return KeyRules(**{**self.model_dump(), "scopes": frozenset(self.scopes)})


@dataclass(frozen=True)
class KeyList:
    """All keys."""

    keys: Sequence[KeyStatus]


@dataclass(frozen=True)
class KeyTold(KeyStatus):
    """A key with its text, which is told this once."""

    key: str


@router.get("", **shaped(KeyList))
async def keys(keys: KeysOf) -> dict[str, Any]:
    """All keys with what they may do and have used, revoked ones too; the text of none."""
    return {"keys": [key.to_json() for key in keys.all()]}


@router.post("", **shaped(KeyTold))
async def add(body: NewKey, keys: KeysOf, response: Response) -> dict[str, Any]:
    """Add a key. The answer has its text, which nobody can be told again."""
    return _told(response, *await keys.add(body.rules()))


@router.post("/{name}/rotate", **shaped(KeyTold))
async def rotate(name: Named, keys: KeysOf, response: Response) -> dict[str, Any]:
    """Give a key another text. What it may do and has used stays; the old text is of no use at once."""
    return _told(response, *await keys.rotate(name))


@router.delete("/{name}", **shaped(KeyStatus))
async def revoke(name: Named, keys: KeysOf) -> dict[str, Any]:
    """Revoke a key: no further request gets in with it, and nothing more is told to who follows events or logs."""
    return (await keys.revoke(name)).to_json()


def _told(response: Response, status: KeyStatus, text: str) -> dict[str, Any]:
    response.headers["cache-control"] = "no-store"
    return {**status.to_json(), "key": text}
