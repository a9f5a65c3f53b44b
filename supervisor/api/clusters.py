"""`/api/v1/cluster`: the daemons that answer as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field, TypeAdapter, ValidationError

from supervisor.api.answers import PlanDoesNotFit, PlanFits
from supervisor.api.described import shaped
from supervisor.api.services import ClusterOf
from supervisor.config.base import Strict, Target
from supervisor.proxy.metered import key_of
from supervisor.service.clusters import ClusterPlan, ClusterStatus, Invited, NodesNow, NodeStatus, OfferShown

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


class Wanted(Strict):
    """What is asked for: a model that some node has configured, or whatever can be loaded on the node that is asked."""

    target: Target


@dataclass(frozen=True)
class NodeChosen:
    """Where a request for a model would go. `node`: null: nowhere. `why`: what is said of that node.

    `offers`: of the nodes that were asked. `plan`: that of the node; null where it is not understood here.
    """

    node: str | None
    why: str
    offers: Sequence[OfferShown]
    plan: PlanFits | PlanDoesNotFit | None


@dataclass(frozen=True)
class NodeLeft:
    """A node that is no member any more."""

    node: str


@router.get("", **shaped(ClusterStatus))
async def cluster(cluster: ClusterOf) -> dict[str, Any]:
    """The nodes of the cluster, and what runs on each; 409 where this daemon is in none."""
    return cluster.status().to_json()


@router.get("/nodes", **shaped(NodesNow))
async def nodes(cluster: ClusterOf, request: Request) -> dict[str, Any]:
    """Every node as it says that it is now: devices, models, requests; none where this daemon is in no cluster."""
    found, key = await cluster.nodes(), key_of(request.scope)
    return (found if key is None or not key.rules.models else found.limited(key.rules.sees)).to_json()


@router.post("/plan", **shaped(NodeChosen))
async def plan(body: Wanted, cluster: ClusterOf) -> dict[str, Any]:
    """Say which node a request for a model would go to, and why; nothing is loaded."""
    found = await cluster.plan(body.target)
    offers = [asdict(one) for one in found.offers]
    return {"node": found.node, "why": found.why, "offers": offers, "plan": _understood(found)}


@cache
def _form() -> TypeAdapter[PlanFits | PlanDoesNotFit]:
    return TypeAdapter(PlanFits | PlanDoesNotFit)


def _understood(found: ClusterPlan) -> Mapping[str, Any] | None:
    """Return a plan: this node's own as it is, another's if it is one, without what is not known of plans here."""
    if found.plan is None or not found.foreign:
        return found.plan
    try:
        said: dict[str, Any] = _form().dump_python(_form().validate_python(found.plan), mode="json")
    except ValidationError:
        return None
    return said


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
