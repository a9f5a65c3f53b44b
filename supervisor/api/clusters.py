"""`/api/v1/cluster`: the daemons that answer as one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from supervisor.api.answers import shaped
from supervisor.api.services import ClusterOf
from supervisor.config.base import Strict
from supervisor.core.cluster.messages import MOST_TEXT
from supervisor.service.clusters import ClusterStatus, Invited, NodeStatus
from supervisor.service.versions import Version, VersionList, VersionSet

router = APIRouter(prefix="/api/v1/cluster")

Named = Annotated[str, Path(max_length=64)]


class NewNode(Strict):
    """What an invitation is to say.

    `host`: by which name or address the other host reaches this one; null: as the other nodes do. `seconds`: how long
    it is of use.
    """

    host: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9.:_-]+$")] | None = None
    seconds: Annotated[float, Field(ge=1, le=30 * 86400)] = 3600


class Drain(Strict):
    """Whether a node is to take nothing new; what it has loaded is unloaded after its requests."""

    on: bool = True


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


@dataclass(frozen=True)
class NodeLeft:
    """A node that is no member any more."""

    node: str


@router.get("", **shaped(ClusterStatus))
async def cluster(cluster: ClusterOf) -> dict[str, Any]:
    """The nodes of the cluster, and what runs on each; 409 where this daemon is in none."""
    return cluster.status().to_json()


@router.post("/invitations", **shaped(Invited))
async def invite(body: NewNode, cluster: ClusterOf, response: Response) -> dict[str, Any]:
    """Invite another host into the cluster. The token is of use once, and lets in whoever has it."""
    response.headers["cache-control"] = "no-store"
    return asdict(cluster.invite(body.host, body.seconds))


@router.post("/nodes/{name}/drain", **shaped(NodeStatus))
async def drain(name: Named, body: Drain, cluster: ClusterOf) -> dict[str, Any]:
    """Have a node take nothing new, or again."""
    return asdict(await cluster.drain(name, on=body.on))


@router.delete("/nodes/{name}", **shaped(NodeLeft))
async def remove(name: Named, cluster: ClusterOf) -> dict[str, Any]:
    """Take out a node that is no more; its name is free again."""
    await cluster.remove(name)
    return {"node": name}


@router.post("/leave", **shaped(NodeLeft))
async def leave(cluster: ClusterOf) -> dict[str, Any]:
    """Take this node out of the cluster. It is alone once its daemon has been restarted."""
    node = cluster.status().node
    await cluster.leave()
    return {"node": node}


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
