"""`gpuform import`: entries, the state, and a plan without changes."""

import json
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

    def ask(self, method: str, path: str, body: Any = None, key: str = "emulator-admin-key") -> Any:
        request = urllib.request.Request(
            f"{self.url}/{path}",
            json.dumps(body).encode() if body is not None else None,
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def cluster(self, **more: Any) -> str:
        made = self.ask("POST", "together/v1/compute/clusters", {**CLUSTER, **more})
        self.ask("POST", "_emulator/clock", {"advance": 7200})
        return str(made["cluster_id"])

    def volume(self, name: str) -> str:
        body = {"volume_name": name, "region": "us-central-8", "size_tib": 1}
        made = self.ask("POST", "together/v1/compute/clusters/storage/volumes", body)
        self.ask("POST", "_emulator/clock", {"advance": 600})
        return str(made["volume_id"])

    def bench(self, **more: Any) -> str:
        made = self.ask(
            "POST", "tensorone/v1/clusters", {**BENCH, **more}, key="emulator-tensorone-key"
        )
        self.ask("POST", "_emulator/clock", {"advance": 3600})
        return str(made["data"]["id"])

    @property
    def topology(self) -> str:
        return (self.project / "topology.yaml").read_text()

    @property
    def files(self) -> dict[str, bytes]:
        names = ("topology.yaml", "__main__.py", "Pulumi.dev.yaml", ".pulumi/stacks/demo/dev.json")
        paths = [self.project / name for name in names]
        return {path.name: path.read_bytes() for path in paths if path.exists()}

    @property
    def ids(self) -> dict[str, str]:
        """Of what the state has, by name."""
        state = json.loads((self.project / ".pulumi/stacks/demo/dev.json").read_text())
        resources = state["checkpoint"]["latest"].get("resources", [])
        return {e["urn"].rpartition("::")[2]: e["id"] for e in resources if "dynamic/" in e["type"]}

    def imports(self, *arguments: str, code: int = 0) -> str:
        ran = self.run("import", "--yes", *arguments)
        assert ran.code == code, ran.out + ran.err
        return str(ran.out + ran.err)

    def refused(self, *arguments: str) -> str:
        """The refusal, after which all is as before."""
        before = self.files
        told = self.imports(*arguments, code=1)
        assert self.files == before
        return told


@pytest.fixture
def account(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(TOPOLOGY)
    with serve(seed="imports") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield Account(dev, project, server.url)


@pytest.mark.slow
def test_all_of_an_account_is_adopted_as_it_is_and_the_file_keeps_what_it_had(
    account: Account,
) -> None:
    assert account.run("up", "--yes", "--skip-preview").code == 0
    volume = account.ids["data"]
    cluster = account.cluster(volume_id=volume)
    account.ask("DELETE", "_emulator/requests")
    told = account.imports("--all", "--platform", "together")
    assert "is in the stack already, as data" in told
    assert account.ids == {"data": volume, "train-ing": cluster}
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
    assert {each["method"] for each in account.ask("GET", "_emulator/requests")} == {"GET"}
    assert account.run("preview", "--expect-no-changes").code == 0
    assert "Nothing to import" in account.imports("--all", "--platform", "together")
    assert account.run("destroy", "--yes", "--skip-preview").code == 0


@pytest.mark.parametrize("name", ["two\nlines", "x" * 300, "\u202edlrow"])
def test_an_object_whose_name_nobody_can_declare_keeps_nothing_else_from_being_imported(
    account: Account, name: str
) -> None:
    odd = account.volume(name)
    volume = account.volume("good")

    shown = account.imports("--all", "--platform", "together", "--set", "region=us-central-8")

    assert account.ids == {"good": volume}
    assert f"together:SharedVolume {odd} (" in shown
    assert "is left out: it cannot be declared: volume_name must be one line" in shown


def test_an_object_of_an_odd_name_that_is_asked_for_is_refused(account: Account) -> None:
    odd = account.volume("two\nlines")

    shown = account.refused("together:SharedVolume", "mine", odd, "--set", "region=us-central-8")

    assert "volume_name must be one line" in shown


def test_secrets_become_secret_configuration(account: Account) -> None:
    account.bench()
    account.bench(name="other", tags={"team": "web"})
    account.imports("--all", "--platform", "tensorone", "--tag", "team=ml")
    assert list(account.ids) == ["bench"]
    assert 'environment_variables: "{{ config.bench_environment_variables }}"' in account.topology
    assert "  bench_environment_variables: {type: object, secret: true}\n" in account.topology
    assert not any(b"hunter2hunter2" in text for text in account.files.values())
    got = account.run("config", "get", "bench_environment_variables")
    assert json.loads(got.out) == {"KEY": "hunter2hunter2"}
    settings = account.project / "Pulumi.dev.yaml"  # which has a key that nothing declares yet
    settings.write_text(settings.read_text() + "  demo:other_environment_variables: mine\n")
    account.imports("--all", "--platform", "tensorone")
    assert account.run("config", "get", "other_environment_variables").out == "mine\n"
    assert '"{{ config.other_environment_variables_2 }}"' in account.topology


def test_what_no_platform_tells_is_asked_for(account: Account) -> None:
    id_ = account.volume("lonely")
    told = account.refused("together:SharedVolume", "lonely", id_)
    assert f"together:SharedVolume {id_}: the platform does not tell its region" in told
    assert "--set region=VALUE" in told
    account.imports("together:SharedVolume", "lonely", id_, "--set", "region=us-central-8")
    assert account.ids["lonely"] == id_


def test_an_object_that_is_not_there_changes_no_file(account: Account) -> None:
    assert "the platform has no such object" in account.refused("together:Cluster", "x", "nothing")
    assert "'a b' is not a name" in account.refused("together:Cluster", "a b", "nothing")
    refused = account.refused("together:Clutser", "x", "y")
    assert "there is no type 'together:Clutser'\n  did you mean together:Cluster?" in refused
    id_ = account.volume("lonely")
    region = ("--set", "region=us-central-8")
    assert "shared_volumes.data already" in account.refused(
        "together:SharedVolume", "data", id_, *region
    )


def test_what_would_be_changed_on_the_platform_is_refused(account: Account) -> None:
    """Defaults of the file reach the entry, too: the object is not as these say."""
    id_ = account.bench()
    text = TOPOLOGY + "defaults: {clusters: {tensorone: {description: ours}}}\n"
    (account.project / "topology.yaml").write_text(text)
    told = account.refused("tensorone:Cluster", "bench", id_)
    assert "would change description from" in told
    assert "to 'ours'" in told


def test_a_person_who_says_no_gets_the_files_back(account: Account, terminal: None) -> None:
    id_ = account.bench()
    before = account.files
    ran = account.run("import", "tensorone:Cluster", "bench", id_, answers="no\n")
    assert ran.code == 1
    assert "Nothing was changed." in ran.out
    assert account.files == before


def test_nobody_to_ask_is_said_before_anything_is_done(account: Account) -> None:
    ran = account.run("import", "tensorone:Cluster", "bench", "x")
    assert ran.code == 1
    assert "add --yes, or preview first with --preview-only" in ran.err


def test_preview_only_shows_the_entries_and_writes_nothing(account: Account) -> None:
    id_ = account.bench()
    before = account.files
    ran = account.run("import", "tensorone:Cluster", "bench", id_, "--preview-only", "--protect")
    assert ran.code == 0
    assert f"    options: {{import: {id_}, protect: true}}\n" in ran.out
    assert "hunter2" not in ran.out + ran.err
    assert account.files == before


def test_an_entry_that_names_its_object_is_finished(account: Account) -> None:
    """As an interrupted import leaves it, or a person writes it."""
    id_ = account.bench(environment_variables={})
    wanted = ("--all", "--platform", "tensorone")
    shown = account.run("import", *wanted, "--preview-only").out
    (account.project / "topology.yaml").write_text(f"{TOPOLOGY}\n{shown}")
    assert f"import: {id_}" in account.topology
    assert "is declared already, as bench" in account.imports(*wanted)
    assert account.ids == {"bench": id_}
    assert "import:" not in account.topology
    assert account.topology.startswith(TOPOLOGY)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["command", "option"])
def test_what_another_stack_has_is_refused_by_its_name(account: Account, how: str) -> None:
    id_ = account.bench()
    account.imports("tensorone:Cluster", "bench", id_)
    assert account.run("stack", "init", "other").code == 0
    if how == "command":
        (account.project / "topology.yaml").write_text(TOPOLOGY)
        told = account.imports("tensorone:Cluster", "bench", id_, code=1)
        skipped = account.imports("--all", "--platform", "tensorone")
        assert "of stack organization/demo/dev: left alone, `gpuform state move`" in skipped
    else:
        named = f"    name: bench\n    options: {{import: {id_}}}\n"
        text = account.topology.replace("    name: bench\n", named)
        (account.project / "topology.yaml").write_text(text)
        account.run("config", "set", "--secret", "bench_environment_variables", "{}")
        ran = account.run("preview")
        assert ran.code == 1
        told = ran.out + ran.err
    assert "tensorone:Cluster::bench of stack organization/demo/dev" in " ".join(told.split())


@pytest.mark.slow
def test_a_program_gets_statements_and_keeps_its_own(account: Account) -> None:
    (account.project / "topology.yaml").unlink()
    program = (
        '"""Ours."""\nimport pulumi\nfrom gpuform.providers.together import SharedVolume\n\n'
        'data = SharedVolume("data", volume_name="d", region="us-central-8", size_tib=1)  # 1\n'
    )
    main = account.project / "__main__.py"
    main.write_text(program)
    assert account.run("up", "--yes", "--skip-preview").code == 0
    id_ = account.cluster(volume_id=account.ids["data"])
    account.bench()
    account.imports("together:Cluster", "train", id_, "--protect")
    account.imports("--all", "--platform", "tensorone")
    text = main.read_text()
    assert "import_" not in text
    assert "    volume_id=data.id,\n" in text
    assert "    opts=pulumi.ResourceOptions(protect=True),\n" in text
    assert "hunter2" not in text
    lines = [line for line in text.splitlines() if line in program.splitlines()]
    assert [line for line in lines if line] == [line for line in program.splitlines() if line]
    assert account.run("preview", "--expect-no-changes").code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "pass TYPE, NAME and ID of an object, or --all and --platform"),
        (("--all",), "--all requires --platform"),
        (("--all", "--platform", "together", "x:y"), "--all cannot be combined with TYPE"),
        (("a:B", "c", "d", "--tag", "e"), "require --all"),
        (("a:B", "c", "d", "--set", "e"), "FIELD=VALUE"),
    ],
)
def test_flags_that_do_not_fit_are_usage_errors(
    dev: Run, arguments: tuple[str, ...], told: str
) -> None:
    ran = dev("import", *arguments)
    assert ran.code == 2
    assert told in ran.err


def test_values_of_set_are_yaml_or_configuration(account: Account) -> None:
    gate = ("lens:HealthGate", "healthy", "overview")
    account.refused(*gate, "--set", "condition={a: [}")
    account.refused(*gate, "--set", "condition={{ clusters.a }}")
    account.imports(*gate, "--set", "condition={total_nodes: {at_least: 0}}")
    told = account.refused(gate[0], "second", gate[2], "--set", "condition={{ config.c }}")
    assert "the stack has no value of config.c" in told
    assert account.ids == {"healthy": "overview"}


def test_entries_go_to_another_file_of_the_topology_and_under_a_parent(account: Account) -> None:
    assert account.run("up", "--yes", "--skip-preview").code == 0
    id_ = account.bench(environment_variables={})
    one = ("tensorone:Cluster", "bench", id_)
    assert "more.yaml is no part of topology.yaml" in account.refused(*one, "--out", "more.yaml")
    (account.project / "more.yaml").write_text("# more\n")
    (account.project / "topology.yaml").write_text(f"include: [more.yaml]\n{TOPOLOGY}")
    assert "has no resource dta" in account.refused(*one, "--parent", "dta")
    account.imports(*one, "--out", "more.yaml", "--parent", "data", "--protect")
    more = (account.project / "more.yaml").read_text()
    assert more.startswith("# more\n\nclusters:\n  bench:\n")
    assert more.endswith('    options: {parent: "{{ shared_volumes.data }}", protect: true}\n')
    assert account.topology == f"include: [more.yaml]\n{TOPOLOGY}"
    state = json.loads(account.files["dev.json"])["checkpoint"]["latest"]["resources"]
    bench = next(each for each in state if each.get("id") == id_)
    assert "SharedVolume$pulumi-python:dynamic/gpuform.tensorone:Cluster::bench" in bench["urn"]
    assert bench["protect"] is True


def test_an_option_in_the_file_adopts_and_changes_what_is_declared_otherwise(
    account: Account,
) -> None:
    ids = {name: account.bench(name=name, environment_variables={}) for name in ("a-1", "a-2")}
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
    assert {name: account.ids[name] for name in ids} == ids
    assert account.run("preview", "--expect-no-changes").code == 0


def test_types_names_and_regions_choose(account: Account) -> None:
    account.cluster()
    account.volume("lonely")
    wanted = ("--all", "--platform", "together", "--preview-only")

    def shown(*flags: str) -> list[str]:
        ran = account.run("import", *wanted, "--set", "region=us-central-8", *flags)
        return [line.strip() for line in ran.out.splitlines() if line.endswith(":")]

    assert shown() == ["clusters:", "train-ing:", "cluster_config:", "shared_volumes:", "lonely:"]
    assert "lonely:" not in shown("--type", "together:Cluster")
    assert "train-ing:" not in shown("--name", "lone*")
    assert "lonely:" not in shown("--region", "us-central-8")  # it does not tell its region
    ran = account.run("import", *wanted, "--tag", "a")
    assert "together does not tell the tags" in ran.err
    for flags, meant in (
        (("--name", "lone*", "--name", "train-ign"), "--name train-ign fits nothing"),
        (("--region", "us-centrl-8"), "did you mean us-central-8?"),
        (("--type", "together:GpuNode"), "there is no type"),
        (("--name", "nope*"), "without it and with --preview-only"),
    ):
        ran = account.run("import", *wanted, *flags)
        assert (ran.code, ran.out) == (1, "")
        assert meant in ran.err
    account.bench(tags={"team": "ml"})
    ran = account.run("import", "--all", "--platform", "tensorone", "--yes", "--tag", "team=mi")
    assert "--tag team=mi fits nothing that the account holds" in ran.err
    ran = account.run("import", "--all", "--platform", "tensorne", "--yes")
    assert "did you mean tensorone" in ran.err


@pytest.mark.slow
def test_many_objects_take_no_request_each(account: Account) -> None:
    ids = {account.volume(f"v-{number}") for number in range(40)}
    account.ask("DELETE", "_emulator/requests")
    account.imports("--all", "--platform", "together", "--set", "region=us-central-8")
    assert ids == set(account.ids.values())
    requests = account.ask("GET", "_emulator/requests")
    assert sum("volumes/" in each["path"] for each in requests) <= 4
    assert len(requests) <= 16


def test_what_an_interrupted_create_made_is_left_to_the_next_up(account: Account) -> None:
    """Unless nobody declares it any more."""
    id_ = account.volume("training-data")
    urn = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:SharedVolume::data"
    begun = Intent(urn, "together", "SharedVolume", "training-data", "", 1_800_000_000, id=id_)
    open_intents(Backend.open(f"file://{account.project}", {}), "demo", "dev").record(begun)
    region = ("--set", "region=us-central-8")
    one = ("together:SharedVolume", "taken", id_, *region)
    assert "an interrupted run made it for data" in account.refused(*one)
    told = account.imports("--all", "--platform", "together", *region)
    assert "left alone, `gpuform up` takes it over" in told
    (account.project / "topology.yaml").write_text("# nothing\n")
    account.imports(*one)
    assert account.ids == {"taken": id_}
