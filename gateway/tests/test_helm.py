"""The Helm chart, rendered by Helm's own library, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import ir3de
from ir3de_gateway.config.document import Config
from test_deploy import OPERATOR, check_by_schema, find

CHART = Path(__file__).parents[2] / "examples" / "deploy" / "helm" / "ir3de"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
ALL = {
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}},
    "serviceMonitor": {"enabled": True},
    "files": {"prices.json": '{"law": {"input_per_1m": 2.5}}'},
    "podAnnotations": {"team": "law"},
    "nodeSelector": {"pool": "cpu"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "routerVolume": {"storageClass": "nfs"},
    "service": {"type": "LoadBalancer"},
}
LEAN = {
    "routerVolume": {"enabled": False},
    "stateVolume": {"enabled": False},
    "config": {"router": {"path": "s3://bucket/router"}, "server": {"port": 9000, "drain": 60}},
    "image": {"repository": "registry.example/ir3de", "tag": "1"},
}


def render(values: dict[str, Any], name: str = "gate") -> dict[str, dict[str, Any]]:
    """What `helm install` would send, by kind; claims and the account by kind and name."""
    helm = pytest.importorskip("helm_python", reason="needs Helm's library: pip install helm-python-sdk")
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(chart.merge_values(values))
        made = chart.render(values, name=name, namespace="experts")
    texts = [text for path, text in made.items() if path.endswith(".yaml")]
    resources = [one for text in texts for one in yaml.safe_load_all(text) if one]
    found = {one["kind"]: one for one in resources if one["kind"] != "PersistentVolumeClaim"}
    return found | {one["metadata"]["name"]: one for one in resources if one["kind"] == "PersistentVolumeClaim"}


def test_the_values_are_a_configuration_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == ir3de.__version__
    config = Config.model_validate(VALUES["config"])
    assert config.server.port == 8100 and config.state == "/var/lib/ir3de"
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(VALUES) <= set(schema["properties"])


@pytest.mark.slow
@pytest.mark.parametrize("values", [{}, ALL, LEAN], ids=["default", "all", "lean"])
def test_kubernetes_knows_every_resource(values: dict[str, Any]) -> None:
    found = render(values)
    for resource in found.values():
        check_by_schema(resource)
        assert resource["metadata"]["labels"]["app.kubernetes.io/instance"] == "gate"
    assert {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "HorizontalPodAutoscaler"} <= set(found)
    assert ({"Ingress", OPERATOR[0]} <= set(found)) == (values is ALL)
    claims = set() if values is LEAN else {"gate-router", "gate-state"}
    assert {name for name, one in found.items() if one["kind"] == "PersistentVolumeClaim"} == claims


@pytest.mark.slow
def test_the_pods_are_those_of_kustomize() -> None:
    ours, theirs = render({})["Deployment"]["spec"]["template"]["spec"], find("Deployment")["spec"]["template"]["spec"]
    (mine,), (other,) = ours.pop("containers"), theirs.pop("containers")
    for name in (
        "securityContext",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "resources",
        "ports",
    ):
        assert mine[name] == other[name], name
    for name in ("securityContext", "terminationGracePeriodSeconds", "automountServiceAccountToken"):
        assert ours[name] == theirs[name], name
    assert mine["volumeMounts"] == other["volumeMounts"] and [one["name"] for one in mine["env"]] == [
        one["name"] for one in other["env"]
    ]
    assert mine["image"] == f"ir3de:{ir3de.__version__}"


@pytest.mark.slow
def test_the_configuration_is_mounted_and_a_change_of_it_replaces_the_pods() -> None:
    found = render(ALL)
    assert Config.model_validate(yaml.safe_load(found["ConfigMap"]["data"]["ir3de.yaml"])) == Config.model_validate(
        VALUES["config"]
    )
    assert json.loads(found["ConfigMap"]["data"]["prices.json"])["law"]["input_per_1m"] == 2.5
    sums = [
        one["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for one in (found, render(LEAN), render(ALL))
    ]
    assert sums[0] != sums[1] and sums[0] == sums[2]
    pod = render(LEAN)["Deployment"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 75 and pod["containers"][0]["ports"][0]["containerPort"] == 9000
    assert {one["name"] for one in pod["volumes"]} == {"config", "state", "tmp"}
    assert pod["containers"][0]["image"] == "registry.example/ir3de:1"
    selector = found["Service"]["spec"]["selector"]
    assert found["Deployment"]["spec"]["template"]["metadata"]["labels"] == selector
    assert selector == found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"images": {}},
        {"config": {"experts": []}},
        {"service": {"port": 0}},
        {"stateVolume": {"size": "one"}},
        {"autoscaling": {"minReplicas": "two"}},
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"(?i)schema|values|additional|minimum|pattern|got"):
        render(values)


@pytest.mark.slow
def test_helm_lints_it() -> None:
    helm = pytest.importorskip("helm_python", reason="needs Helm's library: pip install helm-python-sdk")
    report = helm.lint(str(CHART), {}, strict=True)
    assert report["errors"] == [] or report["errors"] is None
    assert [one for one in report["messages"] or () if "icon" not in str(one)] == []
