"""Test the protocol that clients rely on: lists in parts, selectors, watches, patches, kubectl."""

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import watch
from kubernetes.client.exceptions import ApiException
from processes.limits import LAST_RESORT

from gpuform.providers.emulator.kubernetes.kinds import StatusError
from gpuform.providers.emulator.kubernetes.objects import matches_labels
from gpuform.providers.emulator.kubernetes.verbs import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    apply_patch,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def test_a_list_with_a_limit_comes_in_parts(kube: Any) -> None:
    for at in range(5):
        kube.add_pod(f"job-{at}")
    names, token = [], None
    while token != "":
        part = kube.core.list_namespaced_pod("default", limit=2, _continue=token)
        names.append([pod.metadata.name for pod in part.items])
        token = part.metadata._continue or ""
    assert names == [["job-0", "job-1"], ["job-2", "job-3"], ["job-4"]]
    with pytest.raises(ApiException) as refused:
        kube.core.list_namespaced_pod("default", limit=2, _continue="?")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app=a", True),
        ("app==a,tier=x", True),
        ("app!=a", False),
        ("app in (b, a),tier", True),
        ("app notin (a)", False),
        ("!gone", True),
        ("!app", False),
    ],
)
def test_lists_are_filtered_by_label_selectors(selector: str, expected: bool) -> None:
    assert matches_labels(selector, {"app": "a", "tier": "x"}) is expected


def test_pods_are_filtered_by_their_node(kube: Any) -> None:
    first, second, _ = kube.node_names()
    kube.add_pod("a", node=first, labels={"app": "a"})
    kube.add_pod("b", node=second)
    pods = kube.core.list_namespaced_pod("default", field_selector=f"spec.nodeName={first}")
    assert [pod.metadata.name for pod in pods.items] == ["a"]
    pods = kube.core.list_namespaced_pod("default", label_selector="app=a")
    assert [pod.metadata.name for pod in pods.items] == ["a"]
    with pytest.raises(ApiException) as refused:
        kube.core.list_namespaced_pod("default", field_selector="nonsense")
    assert refused.value.status == 400


def test_a_watch_sends_changes_as_they_happen(kube: Any, control: Any) -> None:
    kube.add_pod("old")
    listed = kube.core.list_namespaced_pod("default").metadata.resource_version
    events: list[tuple[str, str]] = []
    begun = threading.Event()

    def change_nodes() -> None:
        begun.wait(LAST_RESORT)
        kube.add_pod("new", grace=10)
        kube.core.delete_namespaced_pod("new", "default")
        control.advance(11)
        kube.add_pod("last")

    thread = threading.Thread(target=change_nodes)
    thread.start()
    begun.set()
    watching = watch.Watch()
    for event in watching.stream(
        kube.core.list_namespaced_pod, "default", resource_version=listed, timeout_seconds=60
    ):
        events.append((event["type"], event["object"].metadata.name))
        if events[-1][1] == "last":
            watching.stop()
    thread.join()
    assert ("DELETED", "new") in events
    assert events[-1] == ("ADDED", "last")
    assert "old" not in {name for _, name in events}


@pytest.mark.parametrize("version", [None, "0"])
def test_a_watch_without_a_version_begins_with_the_present_objects(
    kube: Any, version: str | None
) -> None:
    kube.add_pod("removed", grace=0)
    kube.core.delete_namespaced_pod("removed", "default")
    kube.add_pod("present", grace=0)
    events: list[tuple[str, str]] = []
    watching = watch.Watch()
    options = {} if version is None else {"resource_version": version}
    for event in watching.stream(
        kube.core.list_namespaced_pod, "default", timeout_seconds=60, **options
    ):
        events.append((event["type"], event["object"].metadata.name))
        if event["type"] == "ADDED":
            kube.core.delete_namespaced_pod("present", "default")
        else:
            watching.stop()
    assert events == [("ADDED", "present"), ("DELETED", "present")]


@pytest.mark.slow
@given(OBJECTS, OBJECTS)
def test_a_merge_patch_sets_and_removes_fields(old: dict[str, Any], patch: dict[str, Any]) -> None:
    new = apply_patch(old, patch, MERGE_PATCH)
    assert apply_patch(new, patch, MERGE_PATCH) == new  # once more changes nothing
    assert apply_patch(old, {}, MERGE_PATCH) == old
    for key, value in patch.items():
        if value is None:
            assert key not in new
        elif not isinstance(value, dict):
            assert new[key] == value
    assert {key: new[key] for key in old if key not in patch} == {
        key: old[key] for key in old if key not in patch
    }


@given(OBJECTS, st.sampled_from("abc"), VALUES)
def test_a_json_patch_is_undone_by_its_inverse(old: dict[str, Any], key: str, value: Any) -> None:
    new = apply_patch(old, [{"op": "add", "path": f"/{key}", "value": value}], JSON_PATCH)
    assert new[key] == value
    back = (
        {"op": "replace", "path": f"/{key}", "value": old[key]}
        if key in old
        else {"op": "remove", "path": f"/{key}"}
    )
    assert apply_patch(new, [back], JSON_PATCH) == old


def test_a_strategic_patch_merges_lists_by_their_keys() -> None:
    old = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "x"}]}
    patch = {
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "Disk", "$patch": "delete"}]
    }
    assert apply_patch(old, patch, STRATEGIC_PATCH) == {
        "conditions": [{"type": "Ready", "status": "False"}]
    }
    assert apply_patch({"finalizers": ["a"]}, {"finalizers": ["b"]}, STRATEGIC_PATCH) == {
        "finalizers": ["a", "b"]
    }


@pytest.mark.parametrize(
    ("patch", "form", "status"),
    [
        ([{"op": "test", "path": "/a", "value": 2}], JSON_PATCH, 422),
        ([{"op": "remove", "path": "/b"}], JSON_PATCH, 422),
        ([{"op": "dance", "path": "/a"}], JSON_PATCH, 422),
        ([], MERGE_PATCH, 400),
        ({}, "application/apply-patch+yaml", 415),
    ],
)
def test_a_malformed_patch_is_refused(patch: Any, form: str, status: int) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch({"a": 1}, patch, form)
    assert refused.value.status == status


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.slow
def test_kubectl_gets_cordons_drains_and_applies(
    kube: Any, kubectl_config: Path, tmp_path: Path
) -> None:
    node = kube.node_names()[0]
    kube.add_pod("job", node=node, grace=0)

    def kubectl(*arguments: str) -> str:
        command = ["kubectl", f"--kubeconfig={kubectl_config}", f"--cache-dir={tmp_path}/cache"]
        finished = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=LAST_RESORT
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    assert node in kubectl("get", "nodes")
    kubectl("cordon", node)
    assert kube.core.read_node(node).spec.unschedulable
    kubectl("drain", node, "--ignore-daemonsets", "--force")
    assert kube.pod_names() == []
    kubectl("uncordon", node)
    assert not kube.core.read_node(node).spec.unschedulable
    manifest = tmp_path / "claim.json"
    for storage in ("10Gi", "20Gi"):
        spec = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": storage}},
            "volumeName": "data",
        }
        total = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
        manifest.write_text(json.dumps({**total, "metadata": {"name": "shared"}}))
        kubectl("apply", "-f", str(manifest))
    stored_claim = json.loads(kubectl("get", "pvc", "shared", "-o", "json"))
    assert stored_claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert stored_claim["status"]["phase"] == "Bound"
    kubectl("delete", "pvc", "shared")
