"""The whole path from a declared topology to a running cluster and back, on Together."""

import base64
import json

import pytest
import together
import yaml
from support.topologies.declarations import CLUSTER, VOLUME

from gpuform.providers.emulator.together import ADMIN_KEY

pytestmark = pytest.mark.slow


def client(project) -> together.Together:
    url = project.emulator.url + "/together"
    return together.Together(api_key=ADMIN_KEY, base_url=url, max_retries=0)


def test_a_cluster_and_its_volume_are_created_and_stay_unchanged(project):
    project.declare(CLUSTER, VOLUME)
    plan = project.run_ok("preview")
    assert "num_gpus" in plan.out
    assert project.objects == {"clusters": [], "volumes": []}
    up = project.up()
    assert "RunningAcceptanceTests" in up.text, "the platform's own phases are shown"
    (cluster,) = project.objects["clusters"]
    assert cluster["status"] == "Ready"
    assert project.run_ok("preview", "--expect-no-changes")
    assert project.run_ok("refresh", "--yes", "--skip-preview", "--expect-no-changes")
    assert project.run_ok("preview", "--expect-no-changes")
    assert project.run_ok("up", "--yes", "--expect-no-changes")
    result = project.run_process("stack", "output", "status")
    assert (result.code, result.out.strip(), result.err) == (0, "Ready", "")


def test_scaling_sends_one_request_with_only_the_changed_field(project):
    project.declare(CLUSTER, VOLUME)
    project.up()
    for gpus in (24, 16):
        project.declare({**CLUSTER, "num_gpus": gpus}, VOLUME)
        (step,) = project.list_changes().values()
        assert (step["op"], step["diffReasons"]) == ("update", ["num_gpus"])
        project.forget_requests()
        project.up()
        ((_, path, body),) = project.list_requests("PUT", "POST", "DELETE")
        assert body == {"num_gpus": gpus}
        cluster = client(project).clusters.retrieve(path.rsplit("/", 1)[1])
        assert (cluster.status, len(cluster.gpu_worker_nodes) * 8) == ("Ready", gpus)
        assert project.run("preview", "--expect-no-changes").code == 0


def test_another_region_or_gpu_type_replaces_the_cluster_and_names_the_field(project):
    project.declare(CLUSTER)
    project.up()
    for field, value in (("region", "us-central-4"), ("gpu_type", "H200_SXM")):
        project.declare({**CLUSTER, field: value})
        result = project.run("preview")
        assert "replace" in result.out, result.text
        assert field in result.out
        step = json.loads(project.run("preview", "--json").out)["steps"][-1]
        assert (step["op"], step["replaceReasons"]) == ("replace", [field])
        assert project.run("preview", "--expect-no-changes").code == 7


def test_a_replacement_deletes_first_and_keeps_the_volume(project):
    project.declare(CLUSTER, VOLUME)
    project.up()
    project.forget_requests()
    project.declare({**CLUSTER, "cluster_name": "second"}, VOLUME)
    project.up()
    verbs = [method for method, path, _ in project.list_requests("POST", "DELETE")]
    assert verbs == ["DELETE", "POST"]
    assert [c["name"] for c in project.objects["clusters"]] == ["second"]
    assert len(project.objects["volumes"]) == 1


def test_a_volume_grows_in_place_and_does_not_shrink(project):
    project.declare(None, VOLUME)
    project.up()
    project.declare(None, {**VOLUME, "size_tib": 8})
    (step,) = project.list_changes().values()
    assert (step["op"], step["diffReasons"]) == ("update", ["size_tib"])
    project.up()
    assert [v["size_tib"] for v in _list_volumes(project)] == [8]
    project.declare(None, {**VOLUME, "size_tib": 3})
    refused = project.run("preview")
    assert refused.code == 1
    assert "size_tib" in refused.text
    assert "shrink" in refused.text


def _list_volumes(project):
    return [v.model_dump() for v in client(project).clusters.storage.list().volumes]


def test_a_change_by_someone_else_is_drift_of_only_that_field(project):
    project.declare(CLUSTER)
    project.up()
    (cluster,) = client(project).clusters.list().clusters
    client(project).clusters.update(cluster.cluster_id, num_gpus=32)
    result = project.run_ok("refresh", "--yes")
    assert "num_gpus: 16 => 32" in result.text
    (step,) = project.list_changes().values()
    assert (step["op"], list(step["detailedDiff"])) == ("update", ["num_gpus"])
    assert project.run("preview", "--expect-no-changes").code == 7


def test_destroy_deletes_the_cluster_first_and_waits_until_the_volume_is_detached(project):
    project.declare(CLUSTER, VOLUME)
    project.up()
    project.forget_requests()
    project.run_ok("destroy", "--yes")
    deletes = [path for _, path, _ in project.list_requests("DELETE")]
    assert len(deletes) == 2
    assert "storage" not in deletes[0]
    assert "storage/volumes" in deletes[1]
    assert project.objects == {"clusters": [], "volumes": []}
    assert project.state.get("resources", []) == []
    assert project.run_ok("stack", "rm", "dev", "--yes")


def test_an_object_with_the_same_name_is_unchanged_until_it_is_imported(project):
    client(project).clusters.storage.create(**VOLUME)
    project.send_control_request("POST", "clock", json={"advance": 600})
    project.declare(None, VOLUME)
    refused = project.run("up", "--yes", "--skip-preview")
    assert refused.code == 1
    (volume,) = project.objects["volumes"]
    import_option = f'import_="{volume["id"]}"'
    assert import_option in refused.text
    project.write_program(
        "import pulumi\n"
        "from gpuform.providers.together import SharedVolume\n"
        f"SharedVolume('data', **{VOLUME!r}, opts=pulumi.ResourceOptions({import_option}))\n"
    )
    assert "= 1 to import" in project.run_ok("preview").out
    project.forget_requests()
    project.up()
    assert project.list_requests("POST", "PUT", "DELETE") == []
    project.run_ok("preview", "--expect-no-changes")
    project.declare(None, VOLUME)
    project.run_ok("preview", "--expect-no-changes")
    project.run_ok("destroy", "--yes")
    assert project.objects["volumes"] == []


def test_the_kubeconfig_can_be_used(project):
    project.declare(CLUSTER)
    project.up()
    assert "[secret]" in project.run_ok("stack", "output").out
    assert project.run_ok("stack", "output", "kubeconfig").out.strip() == "[secret]"
    kubeconfig = yaml.safe_load(
        project.run_ok("stack", "output", "kubeconfig", "--show-secrets").out
    )
    assert kubeconfig["kind"] == "Config"
    assert kubeconfig["clusters"][0]["cluster"]["server"].startswith("https://")
    assert kubeconfig["users"][0]["user"]["token"]


def test_secrets_are_in_no_output_and_no_file(project):
    project.declare(CLUSTER, VOLUME)
    results = [
        project.run("preview", "--json", "-v"),
        project.run("up", "--yes", "-v"),
        project.run("up", "--yes", "--json", "-v"),
        project.run("refresh", "--yes", "-v"),
        project.run("stack", "export"),
        project.run("stack", "output", "--json"),
        project.run("preview", "-v"),
    ]
    config = project.run_ok("stack", "output", "kubeconfig", "--show-secrets").out
    token = yaml.safe_load(config)["users"][0]["user"]["token"]
    encoded = base64.b64encode(config.strip().encode()).decode()[:40]
    key = project.environ["TOGETHER_API_KEY"]
    texts_by_source = {f"command {i}": result.text for i, result in enumerate(results)}
    texts_by_source["requests"] = json.dumps(project.send_control_request("GET", "requests"))
    for path in project.directory.rglob("*"):
        if path.is_file():
            texts_by_source[str(path)] = path.read_text(errors="replace")
    for source, content in texts_by_source.items():
        for secret in (token, encoded, key):
            assert secret not in content, source


def test_the_state_has_pulumis_format(project):
    project.declare(CLUSTER, VOLUME)
    project.up()
    types = [r["type"] for r in project.state["resources"]]
    assert types == [
        "pulumi:pulumi:Stack",
        "pulumi:providers:pulumi-python",
        "pulumi-python:dynamic/gpuform.together:SharedVolume",
        "pulumi-python:dynamic/gpuform.together:Cluster",
    ]
    for name in ("data", "train"):
        pickled = project.get_resource(name)["inputs"]["__provider"]
        assert isinstance(pickled, str), "no secret is in it"
        assert len(pickled) < 200
    outputs = project.get_resource("train")["outputs"]
    assert outputs["ready"] is True
    assert outputs["kube_config"]["ciphertext"].startswith("v1:")
    assert {k: outputs[k] for k in CLUSTER if k != "driver_version"} == {
        k: v for k, v in CLUSTER.items() if k != "driver_version"
    }


def test_both_spellings_of_the_driver_are_equal(project):
    project.declare(CLUSTER)
    project.up()
    pair = {k: v for k, v in CLUSTER.items() if k != "driver_version"}
    project.declare({**pair, "cuda_version": "12.6", "nvidia_driver_version": "560"})
    assert project.run("preview", "--expect-no-changes").code == 0


def test_a_cluster_replaced_with_its_volume_also_names_its_own_reasons(project):
    project.declare(CLUSTER, VOLUME)
    project.up()
    project.declare({**CLUSTER, "region": "us-central-4"}, {**VOLUME, "region": "us-central-4"})
    plan = project.run_ok("preview").out
    assert "volume_id depends on a replaced resource; region cannot be changed in place" in plan
