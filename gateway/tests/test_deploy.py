"""The files for deployments: what Kubernetes, Kustomize, Compose and Grafana say of them, without a cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import ir3de
from ir3de_gateway.cli.ext_proc import ext_proc
from ir3de_gateway.cli.serve import serve
from ir3de_gateway.config.document import Config, Server
from ir3de_gateway.config.experts import Timeouts
from ir3de_gateway.server import KEEP_ALIVE_S
from ir3de_gateway.serving.supervisor import STOP_GRACE_S
from monitored_run import DASHBOARD

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
BASE, PRODUCTION = DEPLOY / "kubernetes" / "base", DEPLOY / "kubernetes" / "production"
KUSTOMIZATIONS = sorted(DEPLOY.rglob("kustomization.yaml"))
OPERATOR = ("ServiceMonitor", "PrometheusRule")  # kinds that Kubernetes itself does not know


def read_resources(folder: Path) -> list[dict[str, Any]]:
    """The resources of a Kustomization and of those it is built on, as its files have them."""
    found: list[dict[str, Any]] = []
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = folder / name
        found += read_resources(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    return found


def find(kind: str, folder: Path = BASE) -> dict[str, Any]:
    (found,) = (one for one in read_resources(folder) if one["kind"] == kind)
    return found


def test_every_file_that_is_named_is_there() -> None:
    for path in KUSTOMIZATIONS:
        said = yaml.safe_load(path.read_text())
        files = [*said["resources"], *(one for made in said["configMapGenerator"] for one in made["files"])]
        assert all((path.parent / one).exists() for one in files), path
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounted = [one.partition(":")[0] for service in services.values() for one in service.get("volumes", ())]
    ours = [one for one in mounted if one.startswith("./monitoring")]
    assert len(ours) == 4 and all((DEPLOY / one).exists() for one in ours)


def test_the_pods_are_safe_and_fit_the_gateway() -> None:
    pod = find("Deployment")["spec"]["template"]
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    config = Config.model_validate(yaml.safe_load((BASE / "ir3de.yaml").read_text()))
    (port,) = container["ports"]
    assert port["containerPort"] == config.server.port
    assert find("Service")["spec"]["ports"][0]["targetPort"] == port["name"]
    probes = {name: container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    assert probes == {"livenessProbe": "/livez", "readinessProbe": "/readyz", "startupProbe": "/livez"}
    assert spec["terminationGracePeriodSeconds"] >= config.server.drain + 5
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    assert mounts["state"]["mountPath"] == config.state and mounts["router"]["mountPath"] == config.router.path
    assert set(mounts) == {one["name"] for one in spec["volumes"]}
    labels = pod["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert find(kind)["spec"]["selector"]["matchLabels"] == labels
    assert find("Service")["spec"]["selector"] == labels
    assert "replicas" not in find("Deployment")["spec"]  # or every `apply` would undo the autoscaler
    assert find("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == find("Deployment")["metadata"]["name"]


def test_the_dashboards_panels_neither_overlap_nor_repeat_an_id() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for place in (panel["gridPos"],)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


def check_by_schema(resource: dict[str, Any]) -> None:
    """Against the schemas of the newest Kubernetes; those of the operator are not among them."""
    validate = pytest.importorskip("kubernetes_validate")
    if resource["kind"] not in OPERATOR:
        validate.validate(resource, validate.latest_version(), strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_kubernetes_knows_every_resource(path: Path) -> None:
    for resource in read_resources(path.parent):
        check_by_schema(resource)


@pytest.mark.slow
def test_a_mistake_would_be_found() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    broken = find("Deployment")
    broken["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(validate.ValidationError):
        check_by_schema(broken)


def test_envoys_ai_gateway_gets_the_models_that_the_processor_names() -> None:
    resources = list(yaml.safe_load_all((DEPLOY / "envoy" / "ai-gateway.yaml").read_text()))
    deployment, service, policy, route = resources
    for resource in (deployment, service):
        check_by_schema(resource)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    asked = policy["spec"]["extProc"][0]["backendRefs"][0]
    ports = service["spec"]["ports"][0]["port"], container["ports"][0]["containerPort"]
    assert (asked["name"], asked["port"], asked["port"]) == (service["metadata"]["name"], *ports)
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    command = ext_proc.make_context("ext-proc", container["args"][1:])
    named = {one.partition("=")[2] for one in command.params["models"]}
    assert named == {rule["matches"][0]["headers"][0]["value"] for rule in route["spec"]["rules"]}
    assert command.params["rewrite_model"] and command.params["listen"].endswith(f":{ports[1]}")


def render(folder: Path, work: Path) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would send, by kubectl itself. Before version 1.21 it had another name for folders."""
    copied = work / "deploy"
    shutil.copytree(DEPLOY, copied)
    told = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, check=True).stdout
    if int(re.sub(r"\D", "", json.loads(told)["clientVersion"]["minor"])) < 21:
        for path in copied.rglob("kustomization.yaml"):
            said = yaml.safe_load(path.read_text())
            said["bases"] = [one for one in said["resources"] if (path.parent / one).is_dir()]
            said["resources"] = [one for one in said["resources"] if one not in said["bases"]]
            path.write_text(yaml.safe_dump(said))
    command = ["kubectl", "kustomize", str(copied / folder.relative_to(DEPLOY))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (apt install kubernetes-client)")
def test_kustomize_builds_the_overlay(tmp_path: Path) -> None:
    built = render(PRODUCTION, tmp_path)
    for resource in built:
        check_by_schema(resource)
    by_kind = {resource["kind"]: resource for resource in built}
    assert {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", *OPERATOR} <= set(by_kind)
    assert {one["metadata"].get("namespace") for one in built if one["kind"] != "Namespace"} == {"ir3de"}
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"registry.example/ir3de:{ir3de.__version__}"
    maps = {one["metadata"]["name"]: one["data"] for one in built if one["kind"] == "ConfigMap"}
    (mounted,) = (one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one)
    assert mounted.startswith("ir3de-") and "general" in maps[mounted]["ir3de.yaml"]  # with the hash of its content
    assert json.loads(maps["ir3de-dashboard"]["ir3de.json"])["uid"] == "ir3de"


@pytest.mark.slow
def test_compose_knows_every_field() -> None:
    compose = pytest.importorskip("compose_spec").PyCompose.from_yaml((DEPLOY / "compose.yaml").read_text())
    compose.to_spec()
    compose.validate_volumes()
    compose.validate_configs()
    services = compose.services
    assert {name for name, one in services.items() if one.profiles} == {"prometheus", "grafana"}  # the rest by default


@pytest.mark.slow
def test_grafanas_own_model_reads_the_dashboard() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    given = json.loads(DASHBOARD.read_text())
    read = models.Dashboard.from_json(given)
    assert len(read.panels) == len(given["panels"])
    queries = [one.name for one in read.templating.list_val]
    assert queries == ["datasource", "job", "instance", "expert", "key"]


def read_unit() -> dict[str, dict[str, str]]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign] # systemd knows capitals
    parser.read(DEPLOY / "ir3de.service")
    return {name: dict(parser[name]) for name in parser.sections()}


def test_the_unit_of_systemd_fits_the_gateway(tmp_path: Path) -> None:
    service = read_unit()["Service"]
    program, command, *arguments = service["ExecStart"].split()
    assert (Path(program).name, command) == ("ir3de", "serve")
    assert serve.make_context("serve", [*arguments, "--dry-run"]).params["file"] == "/etc/ir3de/ir3de.yaml"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID" and service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) >= Server().drain + STOP_GRACE_S
    if (analyse := shutil.which("systemd-analyze")) is None:
        return
    unit = tmp_path / "ir3de.service"  # with a program that is there
    unit.write_text((DEPLOY / "ir3de.service").read_text().replace(program, "/bin/true"))
    checked = subprocess.run([analyse, "verify", unit], capture_output=True, text=True, timeout=60)
    assert unit.name not in checked.stderr, checked.stderr


def test_the_proxy_gives_the_gateway_room_and_time() -> None:
    text = re.sub("#.*", "", (DEPLOY / "nginx.conf").read_text())
    said = dict(re.findall(r"^\s*(\w+) ([^;{}]+);", text, re.MULTILINE))
    assert int(said["client_max_body_size"].removesuffix("m")) * 1024**2 >= Server().limits.body_bytes
    assert int(said["proxy_read_timeout"].removesuffix("s")) > Timeouts().total
    assert int(said["keepalive_timeout"].removesuffix("s")) < KEEP_ALIVE_S
    assert said["proxy_buffering"] == "off" and text.count("{") == text.count("}")
    for name in ("nginx.conf", "Caddyfile"):
        assert f"127.0.0.1:{Server().port}" in (DEPLOY / name).read_text()
