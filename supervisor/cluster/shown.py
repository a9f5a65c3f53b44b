"""A node as it is shown: what it has told of itself."""

from __future__ import annotations

from supervisor.core.cluster.directory import Directory, Seen
from supervisor.service.clusters import NodeDevice, NodeModel, NodeStatus


def status_of(directory: Directory, seen: Seen, now: float) -> NodeStatus:
    """Return what is known of a node. now: as the directory has it."""
    node, load, here = seen.node, seen.load, seen.node.name == directory.me
    draining = load is not None and load.draining
    return NodeStatus(
        name=node.name,
        state="away" if not directory.alive(seen, now) else "draining" if draining else "ready",
        address=f"{node.host}:{node.port}",
        program=node.program,
        here=here,
        free_bytes=None if load is None else load.free_bytes,
        heard_s=None if here or load is None else round(now - seen.heard_at, 1),
        devices=[NodeDevice(one.name, one.total_bytes) for one in node.devices],
        models=[
            NodeModel(model, one.state, one.slots, one.busy, one.waiting, one.wait_s, one.load_s)
            for model, one in sorted(({} if load is None else load.models).items())
        ],
        claims=directory.claims_of(node.name, now),
        config_version=node.config_version,
        config_problem=node.config_problem or None,
    )
