"""`/api/v1/cluster/config`: the configuration that the nodes of a cluster share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from supervisor.api.described import shaped
from supervisor.api.services import ClusterOf
from supervisor.config.base import Strict
from supervisor.core.cluster.messages import MOST_TEXT
from supervisor.service.versions import Version, VersionList, VersionSet

router = APIRouter(prefix="/api/v1/cluster")

Number = Annotated[int, Field(ge=0, le=1 << 20)]
ConfigText = Annotated[str, Field(max_length=MOST_TEXT)]


class ConfigCheck(Strict):
    """A configuration that the nodes are to share: YAML."""

    text: ConfigText


class NewConfig(ConfigCheck):
    """The same, to be set. `expected`: the version that it was made from; null: set it whatever is there."""

    expected: Number | None = None


class Revert(Strict):
    """Which version's text is to be set anew; `expected` as for a new one."""

    version: Number
    expected: Number | None = None


@dataclass(frozen=True)
class ConfigChecked:
    """Nothing is wrong with a configuration."""

    ok: bool


@router.get("/config", **shaped(Version))
async def config(cluster: ClusterOf, version: Annotated[int | None, Query(ge=1, le=1 << 20)] = None) -> dict[str, Any]:
    """The configuration that the nodes share, in its newest version or another."""
    return asdict(await cluster.versions().show(version))


@router.get("/config/history", **shaped(VersionList))
async def config_history(cluster: ClusterOf) -> dict[str, Any]:
    """The versions that are kept, the newest first."""
    return asdict(await cluster.versions().history())


@router.post("/config", **shaped(VersionSet))
async def set_config(body: NewConfig, cluster: ClusterOf) -> dict[str, Any]:
    """Set the configuration that the nodes share. Each takes it over as it would its own file."""
    return asdict(await cluster.versions().set(body.text, body.expected))


@router.post("/config/check", **shaped(ConfigChecked))
async def check_config(body: ConfigCheck, cluster: ClusterOf) -> dict[str, Any]:
    """Say what is wrong with a configuration for all nodes, and whether this one could take it over; sets nothing."""
    await cluster.versions().check(body.text)
    return {"ok": True}


@router.post("/config/revert", **shaped(VersionSet))
async def revert_config(body: Revert, cluster: ClusterOf) -> dict[str, Any]:
    """Set the text of an earlier version anew, as the next version."""
    return asdict(await cluster.versions().revert(body.version, body.expected))
