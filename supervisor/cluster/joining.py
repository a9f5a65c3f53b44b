"""Begin a cluster, or join one: prove the authority by its fingerprint first, then tell the secret."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from supervisor.cluster.doorway import AUTHORITY, JOIN, LetIn
from supervisor.cluster.kept import Membership, Server, keep
from supervisor.cluster.known import known_in
from supervisor.core.cluster.messages import PROTOCOL
from supervisor.core.workers.token import JoinToken
from supervisor.errors import ClusterRefused
from supervisor.system.owned import own_folder
from supervisor.workers.authority import Authority, new_request, proven, serial_of

_ANSWER_S: Final = 20.0
_MOST: Final = 1 << 16


def begin(folder: Path, name: str, peers: tuple[str, int], servers: Sequence[Server]) -> Membership:
    """Begin a cluster with this host as its only node, which has the authority and runs the first NATS server.

    peers: host and port for other nodes. servers: all NATS servers there are to be. Raises OSError.
    """
    own_folder(folder)
    authority = Authority(folder)
    key, request = new_request()
    certificate, serial = authority.sign_node(request, name, peers[0], server=True)
    found = Membership(folder, name, serial, *peers, servers=tuple(servers), serves=servers[0])
    keep(found, authority.certificate, certificate, key)
    return found


def join(folder: Path, token: JoinToken, name: str, peers: tuple[str, int], store_port: int) -> Membership:
    """Join the cluster of the node that has made the token. Raises ClusterRefused, OSError.

    store_port: of the NATS server that this host runs, if the cluster has one there.
    """
    where = f"{token.host}:{token.port}"
    unproven = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unproven.check_hostname, unproven.verify_mode = False, ssl.CERT_NONE  # nothing secret is said to it
    first = _ask(token, unproven, "GET", AUTHORITY, None)
    certificate = proven(str(first.get("authority", "")), token.authority)
    if certificate is None:
        raise ClusterRefused(
            f"{where} is not the node that made the invitation, or its cluster has begun anew. Nothing was told to it; "
            "ask for a new invitation."
        )
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.minimum_version, trusting.check_hostname = ssl.TLSVersion.TLSv1_3, False
    trusting.load_verify_locations(cadata=certificate)
    key, request = new_request()
    asked = {"name": name, "host": peers[0], "port": peers[1], "secret": token.secret, "request": request}
    said = _ask(token, trusting, "POST", JOIN, {**asked, "store_port": store_port, "protocol": PROTOCOL})
    try:
        let_in = msgspec.convert(said, LetIn)
        serial = serial_of(let_in.certificate)
    except ValueError:
        raise ClusterRefused(f"{where} gave an answer that makes no sense.") from None
    own = Server(peers[0], store_port)
    serves = own if own in let_in.servers else None
    found = Membership(folder, name, serial, *peers, servers=let_in.servers, serves=serves)
    keep(found, certificate, let_in.certificate, key)
    known_in(folder).keep(let_in.nodes)
    return found


def _ask(token: JoinToken, context: ssl.SSLContext, method: str, path: str, body: object) -> dict[str, Any]:
    """Return what a node answers. Raises ClusterRefused."""
    connection = http.client.HTTPSConnection(token.host, token.port, context=context, timeout=_ANSWER_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        said = json.loads(response.read(_MOST))
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        raise ClusterRefused(
            f"The node cannot be reached at {token.host}:{token.port}: {str(error) or 'no answer'}."
        ) from None
    finally:
        connection.close()
    found: dict[str, Any] = said if isinstance(said, dict) else {}
    if response.status != 200:
        told = found.get("error")
        reason = told.get("message", "") if isinstance(told, dict) else ""
        raise ClusterRefused(f"The node does not let this host in: {reason or response.status}.")
    return found
