"""Who is let into a cluster, and as what."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from supervisor.cluster.doorway import Admission, Joining
from supervisor.cluster.joining import begin
from supervisor.cluster.kept import Server
from supervisor.core.cluster.identity import SERVER
from supervisor.core.cluster.messages import PROTOCOL
from supervisor.errors import ClusterRefused
from supervisor.workers.authority import Authority, new_request
from supervisor.workers.members import Members

SERVERS = (Server("10.0.0.1", 8587), Server("10.0.0.2", 8587), Server("10.0.0.3", 8587))


def names_of(certificate: str) -> list[str]:
    """What a certificate (PEM) says that its host is."""
    found = x509.load_pem_x509_certificate(certificate.encode()).extensions
    return found.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.UniformResourceIdentifier
    )


def test_a_place_of_a_nats_server_is_given_once(tmp_path: Path) -> None:
    """Who has the certificate of a server is believed by the others, and may do what no node may."""
    kept = begin(tmp_path, "first", ("10.0.0.1", 8586), SERVERS)

    def admitting() -> Admission:
        return Admission(kept, Authority(tmp_path), Members(tmp_path / "members.json"), lambda node: (node,))

    def join(admission: Admission, name: str, host: str, store_port: int = 8587) -> bool:
        secret = admission.members.invite(2e9, 1e9)
        request = new_request()[1]
        let_in = admission.admit(Joining(name, host, 8586, store_port, secret, request, PROTOCOL))
        return SERVER in names_of(let_in.certificate)

    admission = admitting()
    assert not join(admission, "other", "10.0.0.4")
    assert not join(admission, "beside", "10.0.0.1", 9587)
    assert join(admission, "second", "10.0.0.2")
    for _ in range(2):
        for host in ("10.0.0.1", "10.0.0.2"):
            with pytest.raises(ClusterRefused, match=f"NATS server of the cluster at {host}:8587 already"):
                join(admission, "thief", host)
        admission = admitting()  # as after a restart
    admission.members.remove("second")
    assert join(admission, "again", "10.0.0.2")
    assert join(admission, "third", "10.0.0.3")
