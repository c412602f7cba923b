"""`gpuform import`: entries, the state, and a plan without changes."""

import json
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend
from gpuform.stacks.operations import importing

Run = Any

TOPOLOGY = """\
# Ours since 2024.
config:
  size: {type: integer, default: 5}   # TiB

shared_volumes:
    data:
        platform:   together
        volume_name: "training-data"
        region: us-central-8
        size_tib: "{{ config.size }}"

outputs:
  a: 1
"""
CLUSTER = {
    "cluster_name": "train ing",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "billing_type": "ON_DEMAND",
}
BENCH = {
    "name": "bench",
    "gpu_type": "A100",
    "gpu_count": 2,
    "storage_gb": 100,
    "region": "us-west-2",
    "project_id": "proj_456",
    "docker_image": "a/b:c",
    "environment_variables": {"KEY": "hunter2hunter2"},
    "tags": {"team": "ml"},
}


@dataclass(frozen=True)
class Account:
    """A project with a topology, and somebody who makes things past it."""

    run: Run
    project: Path
    url: str

    def request(
        self, method: str, path: str, body: Any = None, key: str = "emulator-admin-key"
    ) -> Any:
        request = urllib.request.Request(
            f"{self.url}/{path}",
            json.dumps(body).encode() if body is not None else None,
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def create_cluster(self, **more: Any) -> str:
        created = self.request("POST", "together/v1/compute/clusters", {**CLUSTER, **more})
        self.request("POST", "_emulator/clock", {"advance": 7200})
        return str(created["cluster_id"])

    def create_volume(self, name: str) -> str:
        body = {"volume_name": name, "region": "us-central-8", "size_tib": 1}
        created = self.request("POST", "together/v1/compute/clusters/storage/volumes", body)
        self.request("POST", "_emulator/clock", {"advance": 600})
        return str(created["volume_id"])

    def create_dev_cluster(self, **more: Any) -> str:
        created = self.request(
            "POST", "tensorone/v1/clusters", {**BENCH, **more}, key="emulator-tensorone-key"
        )
        self.request("POST", "_emulator/clock", {"advance": 3600})
        return str(created["data"]["id"])

    @property
    def topology(self) -> str:
        return (self.project / "topology.yaml").read_text()

    @property
    def files(self) -> dict[str, bytes]:
        names = ("topology.yaml", "__main__.py", "Pulumi.dev.yaml", ".pulumi/stacks/demo/dev.json")
        paths = [self.project / name for name in names]
        return {path.name: path.read_bytes() for path in paths if path.exists()}

    @property
    def imported_ids(self) -> dict[str, str]:
        """Return the ids of the objects in the state, by resource name."""
        state = json.loads((self.project / ".pulumi/stacks/demo/dev.json").read_text())
        resources = state["checkpoint"]["latest"].get("resources", [])
        return {e["urn"].rpartition("::")[2]: e["id"] for e in resources if "dynamic/" in e["type"]}

    def run_import(self, *arguments: str, code: int = 0) -> str:
        ran = self.run("import", "--yes", *arguments)
        assert ran.code == code, ran.out + ran.err
        return str(ran.out + ran.err)

    def run_refused_import(self, *arguments: str) -> str:
        """Return the output of a refused import, which changes no file."""
        before = self.files
        output = self.run_import(*arguments, code=1)
        assert self.files == before
        return output


@pytest.fixture
def account(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(TOPOLOGY)
    with serve(seed="imports") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield Account(dev, project, server.url)


@pytest.mark.slow
def test_all_objects_of_an_account_are_imported_unchanged_and_the_file_keeps_its_text(
    account: Account,
) -> None:
    assert account.run("up", "--yes", "--skip-preview").code == 0
    volume = account.imported_ids["data"]
    cluster = account.create_cluster(volume_id=volume)
    account.request("DELETE", "_emulator/requests")
    output = account.run_import("--all", "--platform", "together")
    assert "already in the stack as data" in output
    assert account.imported_ids == {"data": volume, "train-ing": cluster}
    before, after = TOPOLOGY.splitlines(), account.topology.splitlines()
    assert after[: len(before)] == before
    assert after[len(before) :] == [
        "",
        "clusters:",
        "  train-ing:",
        "    platform: together",
        "    cluster_name: train ing",
        "    region: us-central-8",
        "    gpu_type: H100_SXM",
        "    num_gpus: 16",
        '    cuda_version: "12.6"',
        '    nvidia_driver_version: "560"',
        "    billing_type: ON_DEMAND",
        '    volume: "{{ shared_volumes.data }}"',
        "    project_id: project-emulator",
        "    cluster_config:",
        "      load_balancer: NONE",
        "      gpu_operator_version: v24.6.2",
        "      network_operator_version: v24.7.0",
    ]
    assert {request["method"] for request in account.request("GET", "_emulator/requests")} == {
        "GET"
    }
    assert account.run("preview", "--expect-no-changes").code == 0
    assert "Nothing to import" in account.run_import("--all", "--platform", "together")
    assert account.run("destroy", "--yes", "--skip-preview").code == 0


@pytest.mark.parametrize("name", ["two\nlines", "x" * 300, "\u202edlrow"])
def test_an_object_with_an_invalid_name_is_skipped_and_the_others_are_imported(
    account: Account, name: str
) -> None:
    odd = account.create_volume(name)
    volume = account.create_volume("good")

    output = account.run_import("--all", "--platform", "together", "--set", "region=us-central-8")

    assert account.imported_ids == {"good": volume}
    assert f"together:SharedVolume {odd} (" in output
    assert "skipped, because a declaration refuses a value: volume_name must be one line" in output


def test_a_requested_object_with_an_invalid_name_is_refused(account: Account) -> None:
    odd = account.create_volume("two\nlines")

    output = account.run_refused_import(
        "together:SharedVolume", "mine", odd, "--set", "region=us-central-8"
    )

    assert "volume_name must be one line" in output


def test_secrets_of_imported_objects_become_secret_configuration(account: Account) -> None:
    account.create_dev_cluster()
    account.create_dev_cluster(name="other", tags={"team": "web"})
    account.run_import("--all", "--platform", "tensorone", "--tag", "team=ml")
    assert list(account.imported_ids) == ["bench"]
    assert 'environment_variables: "{{ config.bench_environment_variables }}"' in account.topology
    assert "  bench_environment_variables: {type: object, secret: true}\n" in account.topology
    assert not any(b"hunter2hunter2" in content for content in account.files.values())
    got = account.run("config", "get", "bench_environment_variables")
    assert json.loads(got.out) == {"KEY": "hunter2hunter2"}
    settings = account.project / "Pulumi.dev.yaml"  # which has a key that nothing declares yet
    settings.write_text(settings.read_text() + "  demo:other_environment_variables: mine\n")
    account.run_import("--all", "--platform", "tensorone")
    assert account.run("config", "get", "other_environment_variables").out == "mine\n"
    assert '"{{ config.other_environment_variables_2 }}"' in account.topology


def test_inputs_that_no_platform_reports_are_requested(account: Account) -> None:
    id_ = account.create_volume("lonely")
    output = account.run_refused_import("together:SharedVolume", "lonely", id_)
    assert f"together:SharedVolume {id_}: the platform does not report region" in output
    assert "--set region=VALUE" in output
    account.run_import("together:SharedVolume", "lonely", id_, "--set", "region=us-central-8")
    assert account.imported_ids["lonely"] == id_


def test_an_import_of_an_unknown_object_changes_no_file(account: Account) -> None:
    assert "object not found on the platform" in account.run_refused_import(
        "together:Cluster", "x", "nothing"
    )
    refused = account.run_refused_import("together:Cluster", "a b", "nothing")
    assert "'a b' is not a valid resource name" in refused
    refused = account.run_refused_import("together:Clutser", "x", "y")
    assert "unknown type 'together:Clutser'\n  did you mean together:Cluster?" in refused
    id_ = account.create_volume("lonely")
    region = ("--set", "region=us-central-8")
    assert "shared_volumes.data already" in account.run_refused_import(
        "together:SharedVolume", "data", id_, *region
    )


def test_an_import_that_would_change_the_object_is_refused(account: Account) -> None:
    """Defaults of the topology apply to the entry, too, and differ from the object."""
    id_ = account.create_dev_cluster()
    topology = TOPOLOGY + "defaults: {clusters: {tensorone: {description: ours}}}\n"
    (account.project / "topology.yaml").write_text(topology)
    output = account.run_refused_import("tensorone:Cluster", "bench", id_)
    assert "would change description from" in output
    assert "to 'ours'" in output


def test_a_declined_import_restores_the_files(account: Account, terminal: None) -> None:
    id_ = account.create_dev_cluster()
    before = account.files
    ran = account.run("import", "tensorone:Cluster", "bench", id_, answers="no\n")
    assert ran.code == 1
    assert "Nothing was changed." in ran.out
    assert account.files == before


def test_an_import_without_confirmation_fails_before_any_change(account: Account) -> None:
    ran = account.run("import", "tensorone:Cluster", "bench", "x")
    assert ran.code == 1
    assert "add --yes, or preview first with --preview-only" in ran.err


def test_preview_only_shows_the_entries_and_writes_nothing(account: Account) -> None:
    id_ = account.create_dev_cluster()
    before = account.files
    ran = account.run("import", "tensorone:Cluster", "bench", id_, "--preview-only", "--protect")
    assert ran.code == 0
    assert f"    options: {{import: {id_}, protect: true}}\n" in ran.out
    assert "hunter2" not in ran.out + ran.err
    assert account.files == before


def test_an_import_finishes_an_entry_that_names_its_object(account: Account) -> None:
    """The entry is as an interrupted import leaves it, or as a person writes it."""
    id_ = account.create_dev_cluster(environment_variables={})
    selection = ("--all", "--platform", "tensorone")
    output = account.run("import", *selection, "--preview-only").out
    (account.project / "topology.yaml").write_text(f"{TOPOLOGY}\n{output}")
    assert f"import: {id_}" in account.topology
    assert "already declared as bench" in account.run_import(*selection)
    assert account.imported_ids == {"bench": id_}
    assert "import:" not in account.topology
    assert account.topology.startswith(TOPOLOGY)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["command", "option"])
def test_an_object_of_another_stack_is_refused_with_its_owner(account: Account, how: str) -> None:
    id_ = account.create_dev_cluster()
    account.run_import("tensorone:Cluster", "bench", id_)
    assert account.run("stack", "init", "other").code == 0
    if how == "command":
        (account.project / "topology.yaml").write_text(TOPOLOGY)
        output = account.run_import("tensorone:Cluster", "bench", id_, code=1)
        skipped = account.run_import("--all", "--platform", "tensorone")
        assert "of stack organization/demo/dev: skipped; `gpuform state move`" in skipped
    else:
        named = f"    name: bench\n    options: {{import: {id_}}}\n"
        topology = account.topology.replace("    name: bench\n", named)
        (account.project / "topology.yaml").write_text(topology)
        account.run("config", "set", "--secret", "bench_environment_variables", "{}")
        ran = account.run("preview")
        assert ran.code == 1
        output = ran.out + ran.err
    assert "tensorone:Cluster::bench of stack organization/demo/dev" in " ".join(output.split())


@pytest.mark.slow
def test_an_import_adds_statements_to_a_program_and_keeps_the_others(account: Account) -> None:
    (account.project / "topology.yaml").unlink()
    program = (
        '"""Ours."""\nimport pulumi\nfrom gpuform.providers.together import SharedVolume\n\n'
        'data = SharedVolume("data", volume_name="d", region="us-central-8", size_tib=1)  # 1\n'
    )
    main = account.project / "__main__.py"
    main.write_text(program)
    assert account.run("up", "--yes", "--skip-preview").code == 0
    id_ = account.create_cluster(volume_id=account.imported_ids["data"])
    account.create_dev_cluster()
    account.run_import("together:Cluster", "train", id_, "--protect")
    account.run_import("--all", "--platform", "tensorone")
    content = main.read_text()
    assert "import_" not in content
    assert "    volume_id=data.id,\n" in content
    assert "    opts=pulumi.ResourceOptions(protect=True),\n" in content
    assert "hunter2" not in content
    lines = [line for line in content.splitlines() if line in program.splitlines()]
    assert [line for line in lines if line] == [line for line in program.splitlines() if line]
    assert account.run("preview", "--expect-no-changes").code == 0


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ((), "pass TYPE, NAME and ID of an object (`gpuform import together:Cluster train ID`)"),
        (("--all",), "--all requires --platform NAME: together, scp, tensorone or aios"),
        (("--all", "--platform", "together", "x:y"), "--all cannot be combined with TYPE"),
        (("a:B", "c", "d", "--tag", "e"), "require --all"),
        (("a:B", "c", "d", "--set", "e"), "FIELD=VALUE"),
    ],
)
def test_contradicting_flags_are_usage_errors(
    dev: Run, arguments: tuple[str, ...], output: str
) -> None:
    ran = dev("import", *arguments)
    assert ran.code == 2
    assert output in ran.err


def test_set_values_are_yaml_or_references_to_configuration(account: Account) -> None:
    gate = ("lens:HealthGate", "healthy", "overview")
    account.run_refused_import(*gate, "--set", "condition={a: [}")
    account.run_refused_import(*gate, "--set", "condition={{ clusters.a }}")
    account.run_import(*gate, "--set", "condition={total_nodes: {at_least: 0}}")
    output = account.run_refused_import(
        gate[0], "second", gate[2], "--set", "condition={{ config.c }}"
    )
    assert "the stack has no value for config.c" in output
    assert account.imported_ids == {"healthy": "overview"}


def test_entries_are_added_to_a_chosen_file_and_under_a_parent(account: Account) -> None:
    assert account.run("up", "--yes", "--skip-preview").code == 0
    id_ = account.create_dev_cluster(environment_variables={})
    requested_object = ("tensorone:Cluster", "bench", id_)
    assert "more.yaml is not part of topology.yaml" in account.run_refused_import(
        *requested_object, "--out", "more.yaml"
    )
    (account.project / "more.yaml").write_text("# more\n")
    (account.project / "topology.yaml").write_text(f"include: [more.yaml]\n{TOPOLOGY}")
    assert "has no resource dta" in account.run_refused_import(*requested_object, "--parent", "dta")
    account.run_import(*requested_object, "--out", "more.yaml", "--parent", "data", "--protect")
    more = (account.project / "more.yaml").read_text()
    assert more.startswith("# more\n\nclusters:\n  bench:\n")
    assert more.endswith('    options: {parent: "{{ shared_volumes.data }}", protect: true}\n')
    assert account.topology == f"include: [more.yaml]\n{TOPOLOGY}"
    state = json.loads(account.files["dev.json"])["checkpoint"]["latest"]["resources"]
    bench = next(resource for resource in state if resource.get("id") == id_)
    assert "SharedVolume$pulumi-python:dynamic/gpuform.tensorone:Cluster::bench" in bench["urn"]
    assert bench["protect"] is True


def test_an_import_option_in_the_file_imports_and_updates_the_object(
    account: Account,
) -> None:
    ids = {
        name: account.create_dev_cluster(name=name, environment_variables={})
        for name in ("a-1", "a-2")
    }
    entry = """
clusters:
  a:
    platform: tensorone
    for_each: {"1": ID1, "2": ID2}
    name: "a-{{ each.key }}"
    gpu_type: A100
    gpu_count: 2
    storage_gb: 100
    region: us-west-2
    project_id: proj_456
    docker_image: a/b:c
    tags: {team: ours}
    options: {import: "{{ each.value }}"}
"""
    entry = entry.replace("ID1", ids["a-1"]).replace("ID2", ids["a-2"])
    (account.project / "topology.yaml").write_text(f"{TOPOLOGY}{entry}")
    ran = account.run("up", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert "= 2 imported" in ran.out
    assert "~ 2 updated" in ran.out
    assert {name: account.imported_ids[name] for name in ids} == ids
    assert account.run("preview", "--expect-no-changes").code == 0


def test_types_names_and_regions_filter_the_objects(account: Account) -> None:
    account.create_cluster()
    account.create_volume("lonely")
    selection = ("--all", "--platform", "together", "--preview-only")

    def list_shown_names(*flags: str) -> list[str]:
        ran = account.run("import", *selection, "--set", "region=us-central-8", *flags)
        return [line.strip() for line in ran.out.splitlines() if line.endswith(":")]

    assert list_shown_names() == [
        "clusters:",
        "train-ing:",
        "cluster_config:",
        "shared_volumes:",
        "lonely:",
    ]
    assert "lonely:" not in list_shown_names("--type", "together:Cluster")
    assert "train-ing:" not in list_shown_names("--name", "lone*")
    assert "lonely:" not in list_shown_names("--region", "us-central-8")  # its region is unknown
    ran = account.run("import", *selection, "--tag", "a")
    assert "together does not report the tags" in ran.err
    for flags, message in (
        (("--name", "lone*", "--name", "train-ign"), "--name train-ign matches no object"),
        (("--region", "us-centrl-8"), "did you mean us-central-8?"),
        (("--type", "together:GpuNode"), "unknown type"),
        (("--name", "nope*"), "without this flag and with --preview-only"),
    ):
        ran = account.run("import", *selection, *flags)
        assert (ran.code, ran.out) == (1, "")
        assert message in ran.err
    account.create_dev_cluster(tags={"team": "ml"})
    ran = account.run("import", "--all", "--platform", "tensorone", "--yes", "--tag", "team=mi")
    assert "--tag team=mi matches no object of the account" in ran.err
    ran = account.run("import", "--all", "--platform", "tensorne", "--yes")
    assert "did you mean tensorone" in ran.err


@pytest.mark.slow
def test_importing_many_objects_takes_fewer_requests_than_objects(account: Account) -> None:
    ids = {account.create_volume(f"v-{number}") for number in range(40)}
    account.request("DELETE", "_emulator/requests")
    account.run_import("--all", "--platform", "together", "--set", "region=us-central-8")
    assert ids == set(account.imported_ids.values())
    requests = account.request("GET", "_emulator/requests")
    assert sum("volumes/" in request["path"] for request in requests) <= 4
    assert len(requests) <= 16


def test_an_object_of_an_interrupted_create_is_left_to_the_next_up(account: Account) -> None:
    """The object is imported only if no resource of the program declares it any more."""
    id_ = account.create_volume("training-data")
    urn = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:SharedVolume::data"
    begun = Intent(urn, "together", "SharedVolume", "training-data", "", 1_800_000_000, id=id_)
    open_intents(Backend.open(f"file://{account.project}", {}), "demo", "dev").record(begun)
    region = ("--set", "region=us-central-8")
    requested_object = ("together:SharedVolume", "taken", id_, *region)
    assert "an interrupted run created it for data" in account.run_refused_import(*requested_object)
    output = account.run_import("--all", "--platform", "together", *region)
    assert "skipped; `gpuform up` adopts it" in output
    (account.project / "topology.yaml").write_text("# nothing\n")
    account.run_import(*requested_object)
    assert account.imported_ids == {"taken": id_}


def test_the_hint_about_a_missing_secret_works_as_written(account: Account) -> None:
    gate = ("lens:HealthGate", "healthy", "overview", "--set", "condition={{ config.bounds }}")
    output = account.run_refused_import(*gate)
    entry = re.search(r"declare it under `config` of the topology \((.+)\), then set it", output)
    assert entry is not None
    topology = account.project / "topology.yaml"
    topology.write_text(account.topology.replace("config:\n", f"config:\n  {entry[1]}\n"))
    stored = account.run("config", "set", "--secret", "bounds", "{total_nodes: {at_least: 0}}")
    assert stored.code == 0, stored.err


def test_an_import_does_not_undo_a_change_made_after_its_preview(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = account.create_cluster()
    path = f"together/v1/compute/clusters/{id_}"
    gpus = account.request("GET", path)["num_gpus"] + 8
    reject_changes = importing._reject_changes

    def grow_after_preview(outcome: Any) -> None:
        reject_changes(outcome)
        account.request("PUT", path, {"num_gpus": gpus})
        account.request("POST", "_emulator/clock", {"advance": 7200})

    monkeypatch.setattr(importing, "_reject_changes", grow_after_preview)
    output = account.run_import("together:Cluster", "grown", id_, code=1)
    assert "which the plan does not contain" in output
    assert account.request("GET", path)["num_gpus"] == gpus
    assert "grown" not in account.imported_ids
    assert "grown" not in account.topology
