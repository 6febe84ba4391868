"""``infra/kubernetes`` against the published schemas, and against each other."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra/kubernetes"
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = json.loads((SCHEMAS / "kubernetes.json").read_text())
REGISTRY: Registry[Any] = Registry().with_resource("kubernetes.json", Resource.from_contents(KUBERNETES, default_specification=DRAFT7))
TEMPLATE = json.loads((FOLDER / "job-template.json").read_text())


def documents() -> list[tuple[str, dict[str, Any]]]:
    found = [(path.name, document) for path in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]
    return [*found, ("job-template.json", rendered())]


def rendered() -> dict[str, Any]:
    """The job as the worker would make it, from the variables' defaults; what only the worker knows by an example."""
    values = {name: field.get("default") for name, field in TEMPLATE["variables"]["properties"].items()}
    values |= {"name": "run", "command": ["prefect", "flow-run", "execute"], "labels": {"prefect.io/flow-run-name": "run"}}
    values["env"] = [{"name": k, "value": v} for k, v in values["env"].items()]

    def fill(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: fill(v) for k, v in node.items()}
        if isinstance(node, list):
            return [fill(v) for v in node]
        whole = re.fullmatch(r"\{\{ (\w+) \}\}", node) if isinstance(node, str) else None
        if whole:
            return values[whole.group(1)]
        return re.sub(r"\{\{ (\w+) \}\}", lambda m: str(values[m.group(1)]), node) if isinstance(node, str) else node

    job: dict[str, Any] = fill(TEMPLATE["job_configuration"]["job_manifest"])
    # The worker insists on these two in the pod's spec, where Kubernetes has no such fields and drops them.
    for field in ("parallelism", "completions"):
        assert job["spec"]["template"]["spec"].pop(field) == 1
    return job


def faults(document: dict[str, Any]) -> list[str]:
    kind = f"{document['apiVersion']} {document['kind']}"
    schema = json.loads((SCHEMAS / "raycluster.json").read_text()) if kind == "ray.io/v1 RayCluster" else {"$ref": f"kubernetes.json{KUBERNETES['kinds'][kind]['$ref']}"}
    checker = jsonschema.Draft7Validator(schema, registry=REGISTRY)
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in checker.iter_errors(document)]


@pytest.mark.parametrize(("where", "document"), documents(), ids=lambda v: v if isinstance(v, str) else v["kind"])
def test_each_is_valid_under_the_published_schema(where: str, document: dict[str, Any]) -> None:
    assert faults(document) == [], where


def test_the_schemas_can_fail() -> None:
    for where, document in documents():
        for spec in _pod_specs(document):
            wrong = copy.deepcopy(document)
            for pod in _pod_specs(wrong):
                pod["containers"][0]["imagePulPolicy"] = "Always"
            assert faults(wrong), where
            assert spec["containers"]
    cluster = next(d for _, d in documents() if d["kind"] == "RayCluster")
    assert faults(cluster | {"spec": cluster["spec"] | {"workerGroups": []}})


def _pod_specs(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for value in node.values():
            yield from _pod_specs(value)
    elif isinstance(node, list):
        for value in node:
            yield from _pod_specs(value)


def test_every_pod_is_without_privileges() -> None:
    pods = [(where, spec) for where, document in documents() for spec in _pod_specs(document)]
    assert len(pods) == 1 + 4 + 1 + 1
    for where, spec in pods:
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False and container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            mounted = {m["name"] for m in container["volumeMounts"]}
            assert mounted == {v["name"] for v in spec["volumes"]}, where
            for variable in container.get("env", []):
                assert not re.search("SECRET|PASSWORD|TOKEN|AUTH", variable["name"]), variable["name"]


def test_accounts_that_pods_name_are_made_and_only_the_worker_may_do_anything() -> None:
    found = dict(((d["kind"], d["metadata"].get("name")), d) for _, d in documents())
    made = {name for kind, name in found if kind == "ServiceAccount"}
    assert {spec["serviceAccountName"] for _, d in documents() for spec in _pod_specs(d)} == made == {"hetrl-worker", "hetrl-stage"}
    assert found["RoleBinding", "hetrl-worker"]["subjects"] == [{"kind": "ServiceAccount", "name": "hetrl-worker", "namespace": "hetrl"}]
    for rule in found["Role", "hetrl-worker"]["rules"]:
        assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"] and "secrets" not in rule["resources"]
    selected = found["NetworkPolicy", "hetrl-ray"]["spec"]["podSelector"]["matchLabels"].items()
    labels = [d["metadata"]["labels"] for _, d in documents() if d["kind"] in ("RayCluster", "Deployment", "Job") and d["metadata"].get("name")]
    assert all(selected <= label.items() for label in labels)


def test_a_group_of_workers_for_each_kind_of_gpu() -> None:
    cluster = next(d for _, d in documents() if d["kind"] == "RayCluster")["spec"]
    groups = cluster["workerGroupSpecs"]
    products = [g["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"] for g in groups]
    assert len(set(products)) == len(groups) == 3
    for group in groups:
        resources = group["template"]["spec"]["containers"][0]["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == group["rayStartParams"]["num-gpus"]
        assert group["minReplicas"] == group["replicas"] == group["maxReplicas"], "a plan is made for the machines there are"
    assert cluster["enableInTreeAutoscaling"] is False
    pinned = re.search(r"^ray==(.+)$", (ROOT / "infra/constraints.txt").read_text(), re.M)
    assert pinned and cluster["rayVersion"] == pinned.group(1)


def test_variables_of_the_job_template_are_all_used_and_described() -> None:
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(TEMPLATE["job_configuration"])))
    assert used == set(TEMPLATE["variables"]["properties"])
    assert all(field["description"] for field in TEMPLATE["variables"]["properties"].values())
