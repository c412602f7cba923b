"""Test where the project of a cluster comes from, for hosts that only report a URN: Pulumi's."""

from typing import Any

import pytest

from gpuform.providers.errors import AdoptionQuestion, UnknownOutcome
from gpuform.providers.operations import Settings
from gpuform.providers.records import Intent
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.inventory import list_existing_objects
from gpuform.providers.together.regions import list_in_projects
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle
from gpuform.schemas.together.wire import build_cluster_create

VARIABLE = "TOGETHER_PROJECT_ID"
SEARCH = "gpuform.providers.creating.creating.search_created"


@pytest.fixture(autouse=True)
def _without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def check(emulator: Any, inputs: Any, olds: Any = None, **fields: Any) -> dict[str, Any]:
    with emulator.use_context_of(**fields):
        result = ClusterLifecycle().check(olds or {}, inputs)
    assert not result.failures
    return {**result.inputs, "__provider": "pickled"}


def create(emulator: Any, inputs: Any) -> dict[str, Any]:
    with emulator.use_context_of():
        return dict(ClusterLifecycle().create(inputs).outs)


def test_a_lost_create_is_found_in_its_project_without_a_state(
    emulator: Any, cluster_inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "proj-a")
    inputs = check(emulator, cluster_inputs)
    emulator.add_fault("POST", "^/compute/clusters$", drop="after")

    def fail(*_: object) -> None:
        raise UnknownOutcome("nobody knows")

    with monkeypatch.context() as dying:
        dying.setattr(SEARCH, fail)
        with pytest.raises(UnknownOutcome):
            create(emulator, inputs)

    monkeypatch.setenv(VARIABLE, "proj-b")
    inputs = check(emulator, cluster_inputs)
    assert inputs["project_id"] == "proj-a"
    assert "TOGETHER_PROJECT_ID (proj-b) counts for new" in emulator.reported.warnings[-1]
    assert create(emulator, inputs)["project_id"] == "proj-a"
    assert len(emulator.list_objects("clusters")) == 1


def test_a_lost_create_without_a_project_is_not_looked_for_in_that_of_the_variable(
    emulator: Any, cluster_inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.add_fault("POST", "^/compute/clusters$", drop="after")

    def fail(*_: object) -> None:
        raise UnknownOutcome("nobody knows")

    with monkeypatch.context() as dying:
        dying.setattr(SEARCH, fail)
        with pytest.raises(UnknownOutcome):
            create(emulator, check(emulator, cluster_inputs))
    monkeypatch.setenv(VARIABLE, "proj-b")
    inputs = check(emulator, cluster_inputs)
    assert "project_id" not in inputs
    create(emulator, inputs)
    assert len(emulator.list_objects("clusters")) == 1


def test_a_lost_create_of_an_earlier_declaration_is_found_in_its_project(
    emulator: Any, cluster_inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.add_fault("POST", "^/compute/clusters$", drop="after")

    def fail(*_: object) -> None:
        raise UnknownOutcome("nobody knows")

    with monkeypatch.context() as dying:
        dying.setattr(SEARCH, fail)
        with pytest.raises(UnknownOutcome):
            create(emulator, check(emulator, {**cluster_inputs, "project_id": "proj-a"}))
    create(emulator, check(emulator, {**cluster_inputs, "project_id": "proj-b"}))
    assert len(emulator.list_objects("clusters")) == 1


@pytest.mark.parametrize("kind", ["cluster", "volume"])
def test_a_create_that_ignored_the_project_is_not_repeated(
    emulator: Any,
    cluster_inputs: dict[str, Any],
    volume_inputs: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    lifecycle: Any = {"cluster": ClusterLifecycle, "volume": SharedVolumeLifecycle}[kind]()
    inputs = {"cluster": cluster_inputs, "volume": volume_inputs}[kind]
    send = getattr(TogetherClient, f"create_{kind}")

    def send_without_project(client: TogetherClient, inputs: Any) -> None:
        send(client, inputs.model_copy(update={"project_id": None}))
        raise UnknownOutcome("nobody knows")

    with monkeypatch.context() as ignoring, emulator.use_context_of():
        ignoring.setattr(TogetherClient, f"create_{kind}", send_without_project)
        with pytest.raises(AdoptionQuestion):
            lifecycle.create({**inputs, "project_id": "proj-a"})
    emulator.advance(600)
    with emulator.use_context_of(), pytest.raises(AdoptionQuestion):
        lifecycle.create({**inputs, "project_id": "proj-a"})
    assert len(emulator.list_objects(f"{kind}s")) == 1


def test_the_cluster_of_another_project_is_not_adopted(
    emulator: Any, cluster_inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_as_a_colleague(client: TogetherClient, inputs: Any) -> None:
        body = build_cluster_create(inputs)
        emulator.send_as_somebody_else("POST", "/clusters", {**body, "project_id": "proj-c"})
        raise UnknownOutcome("nobody knows")

    listed = TogetherClient.list_clusters
    monkeypatch.setattr(TogetherClient, "list_clusters", lambda client, _: listed(client))
    monkeypatch.setattr(TogetherClient, "create_cluster", send_as_a_colleague)
    with emulator.use_context_of(), pytest.raises(AdoptionQuestion, match="proj-c instead of"):
        ClusterLifecycle().create({**cluster_inputs, "project_id": "proj-a"})


def test_the_inventory_shows_the_objects_in_the_project_of_the_variable(
    emulator: Any, cluster_inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "proj-a")
    create(emulator, check(emulator, cluster_inputs))
    for method in ("list_clusters", "list_volumes"):
        listed = getattr(TogetherClient, method)

        def list_project(
            client: TogetherClient, project_id: Any = None, listed: Any = listed
        ) -> Any:
            return listed(client, project_id or "project-of-the-key")

        monkeypatch.setattr(TogetherClient, method, list_project)
    (cluster,) = list_existing_objects(Settings())
    assert cluster.name == cluster_inputs["cluster_name"]
    monkeypatch.delenv(VARIABLE)
    assert list_existing_objects(Settings()) == []


@pytest.mark.parametrize(("value", "project_id"), [("proj-a\n", "proj-a"), (" ", None)])
def test_blanks_around_the_variable_do_not_count(
    emulator: Any,
    cluster_inputs: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    project_id: str | None,
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert check(emulator, cluster_inputs).get("project_id") == project_id


@pytest.mark.parametrize(
    ("olds", "existing", "project_id"),
    [
        ({}, None, "proj-b"),
        ({"project_id": "proj-a", "region": "r"}, None, "proj-a"),
        ({"region": "r"}, None, None),
        ({}, {"project_id": "proj-a"}, "proj-a"),
        ({}, {}, None),
    ],
    ids=["new", "stored", "stored without", "replaced", "imported"],
)
def test_the_variable_counts_for_new_objects_alone(
    emulator: Any,
    cluster_inputs: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    olds: dict[str, Any],
    existing: dict[str, Any] | None,
    project_id: str | None,
) -> None:
    monkeypatch.setenv(VARIABLE, "proj-b")
    inputs = check(emulator, cluster_inputs, olds, existing_inputs=existing)
    assert inputs.get("project_id") == project_id


def test_an_update_request_of_another_machine_names_no_project(
    emulator: Any, cluster_inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "proj-a")
    inputs = check(emulator, cluster_inputs)
    outs = {**create(emulator, inputs), "__provider": "pickled"}
    monkeypatch.setenv(VARIABLE, "proj-b")
    news = check(emulator, {**cluster_inputs, "num_gpus": 24.0}, inputs)
    (created,) = emulator.list_objects("clusters")
    with emulator.use_context_of():
        updated = ClusterLifecycle().update(created["id"], outs, news).outs
    assert updated is not None
    assert updated["project_id"] == "proj-a"
    (request,) = emulator.list_requests("PUT")
    assert "project_id" not in request["body"]


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e"])
def test_projects_are_listed_in_the_same_order_in_every_process(name: str) -> None:
    intent = Intent(None, "together", "Cluster", "train", "us", 0.0, project=f"recorded-{name}")
    listed: list[str | None] = []

    def list_objects(project_id: str | None) -> list[Any]:
        listed.append(project_id)
        return []

    assert list(list_in_projects(intent, f"declared-{name}", list_objects)) == []
    assert listed == [f"declared-{name}", f"recorded-{name}", None]


def test_the_cluster_of_another_type_is_not_adopted(
    emulator: Any, cluster_inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_as_a_colleague(_: TogetherClient, inputs: Any) -> None:
        body = {**build_cluster_create(inputs), "cluster_type": "SLURM", "slurm_shm_size_gib": 64}
        emulator.send_as_somebody_else("POST", "/clusters", body)
        raise UnknownOutcome("nobody knows")

    monkeypatch.setattr(TogetherClient, "create_cluster", send_as_a_colleague)
    declared = {**cluster_inputs, "cluster_type": "KUBERNETES"}
    with (
        emulator.use_context_of(),
        pytest.raises(AdoptionQuestion, match="cluster_type SLURM instead of KUBERNETES"),
    ):
        ClusterLifecycle().create(declared)
