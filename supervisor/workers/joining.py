"""Join a daemon as a worker: prove the authority by its fingerprint first, then tell the secret.

What is kept lies in the state folder, for its owner alone: the key never leaves the host.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from supervisor.core.workers import messages as m
from supervisor.core.workers.token import JoinToken
from supervisor.errors import WorkerRefused
from supervisor.workers.authority import new_request, proven
from supervisor.workers.lines import Lines
from supervisor.workers.membership import CHAIN, KEY, Membership, keep

_DIAL_S: Final = 10.0
_ANSWER_S: Final = 20.0


async def join(folder: Path, token: JoinToken, name: str) -> Membership:
    """Join, and keep what is needed to connect. Raises WorkerRefused."""
    where = f"{token.host}:{token.port}"
    unproven = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unproven.check_hostname, unproven.verify_mode = False, ssl.CERT_NONE  # nothing secret is said to it
    try:
        first = await _ask(token, unproven, m.Join(name, m.PROTOCOL))
        certificate = proven(first.certificate, token.authority) if isinstance(first, m.Authority) else None
        if certificate is None:
            raise WorkerRefused(
                f"{where} is not the daemon that made the invitation, or has begun anew. Nothing was told to it; "
                "ask for a new invitation."
            )
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.minimum_version = ssl.TLSVersion.TLSv1_3
        trusting.check_hostname = False
        trusting.load_verify_locations(cadata=certificate)
        key, request = new_request()
        answer = await _ask(token, trusting, m.Join(name, m.PROTOCOL, token.secret, request))
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error) or "no answer in time"
        raise WorkerRefused(f"The daemon cannot be reached at {where}: {reason}.") from None
    if isinstance(answer, m.Refused):
        raise WorkerRefused(f"The daemon does not let this host in: {answer.reason}.", cause=answer.code)
    if not isinstance(answer, m.Joined):
        raise WorkerRefused(f"{where} gave an answer that makes no sense.")
    found = Membership(name, token.host, token.port, certificate, folder / CHAIN, folder / KEY)
    keep(folder, found, key, answer.certificate)
    return found


async def _ask(token: JoinToken, context: ssl.SSLContext, message: m.Join) -> m.ToWorker:
    lines = await Lines.dial(token.host, token.port, context, _DIAL_S)
    try:
        lines.say(message)
        return m.to_worker(await lines.line(_ANSWER_S))
    finally:
        lines.abort()
