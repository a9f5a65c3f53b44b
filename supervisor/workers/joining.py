"""Join a daemon as a worker: prove the authority by its fingerprint first, then tell the secret.

What is kept lies in the state folder, for its owner alone: the key never leaves the host.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import msgspec

from supervisor.core.workers import messages as m
from supervisor.core.workers.token import JoinToken
from supervisor.errors import WorkerRefused
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import own_folder, read_own
from supervisor.workers.lines import Lines
from supervisor.workers.worker import Membership

_DIAL_S: Final = 10.0
_ANSWER_S: Final = 20.0
_MOST: Final = 1 << 20


class _Kept(msgspec.Struct, frozen=True):
    name: str
    host: str
    port: int
    authority: str


def joined(folder: Path) -> Membership | None:
    """Return what was kept of a daemon; None: this host is no worker. Raises OSError, and ValueError for nonsense."""
    try:
        kept = msgspec.json.decode(read_own(folder / "worker.json", _MOST), type=_Kept)
    except FileNotFoundError:
        return None
    return Membership(kept.name, kept.host, kept.port, kept.authority, folder / "worker.pem", folder / "worker.key")


async def join(folder: Path, token: JoinToken, name: str) -> Membership:
    """Join, and keep what is needed to connect. Raises WorkerRefused."""
    from supervisor.workers.authority import fingerprint_of, new_request  # noqa: PLC0415 - takes long, and is optional

    where = f"{token.host}:{token.port}"
    unproven = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unproven.check_hostname, unproven.verify_mode = False, ssl.CERT_NONE  # nothing secret is said to it
    try:
        first = await _ask(token, unproven, m.Join(name, m.PROTOCOL))
        certificate = first.certificate if isinstance(first, m.Authority) else ""
        if not certificate or fingerprint_of(certificate) != token.authority:
            raise WorkerRefused(
                f"{where} is not the daemon that made the invitation, or has begun anew. Nothing was told to it; "
                "ask for a new invitation."
            )
        proven = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        proven.minimum_version = ssl.TLSVersion.TLSv1_3
        proven.check_hostname = False
        proven.load_verify_locations(cadata=certificate)
        key, request = new_request()
        answer = await _ask(token, proven, m.Join(name, m.PROTOCOL, token.secret, request))
    except (OSError, TimeoutError, ValueError, msgspec.DecodeError) as error:
        reason = str(error) or "no answer in time"
        raise WorkerRefused(f"The daemon cannot be reached at {where}: {reason}.") from None
    if isinstance(answer, m.Refused):
        raise WorkerRefused(f"The daemon does not let this host in: {answer.reason}.", cause=answer.code)
    if not isinstance(answer, m.Joined):
        raise WorkerRefused(f"{where} gave an answer that makes no sense.")
    own_folder(folder)
    kept = _Kept(name, token.host, token.port, certificate)
    atomic_write(folder / "worker.key", key)
    atomic_write(folder / "worker.pem", answer.certificate.encode())
    atomic_write(folder / "worker.json", msgspec.json.encode(kept), durable=True)
    found = joined(folder)
    assert found is not None  # it was written just now
    return found


async def _ask(token: JoinToken, context: ssl.SSLContext, message: m.Join) -> m.ToWorker:
    lines = await Lines.dial(token.host, token.port, context, _DIAL_S)
    try:
        lines.say(message)
        return m.to_worker(await lines.line(_ANSWER_S))
    finally:
        lines.abort()
