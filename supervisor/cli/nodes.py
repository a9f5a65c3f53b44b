"""The nodes of the daemon's cluster, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervisor.cli.client import Client, Json
from supervisor.cli.render import duration

HERE = "this node alone, where the daemon is in a cluster"
"""What `--here` means."""


def nodes_of(client: Client) -> list[Json]:
    """Return all nodes as they are now, the daemon's own first; empty where it is in no cluster. Raises as `get`."""
    found: list[Json] = client.get("/api/v1/cluster/nodes")["nodes"]
    return found


def name_of(node: Json) -> str:
    """Return what a node is called in a table."""
    return f"{node['name']} (this)" if node["here"] else str(node["name"])


def missing(nodes: Sequence[Json]) -> Iterator[str]:
    """Yield a sentence for each other node of which nothing is shown, or only what it last told."""
    for one in nodes:
        if not (one["asked"] or one["here"]):
            heard = "" if one["heard_s"] is None else f", {duration(one['heard_s'])} ago"
            shown = "nothing is known of it now" if one["state"] == "away" else f"shown as it last told{heard}"
            yield f"note: {one['name']}: {one['why']}; {shown}"
