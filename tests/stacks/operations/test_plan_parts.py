"""Parts of a multi-stack plan: what a folder of parts accepts, refuses and says.

What can go wrong, from the guide "Plan and apply on many runners": a runner is lost, or killed
while it writes; parts of another commit, release or schedule lie in the folder, or under another
name; a stack is planned again after those that read it; somebody edits the plan, the outputs or the
seal of a part; a runner has another passphrase; the schedule leads out of the folder of the stacks;
a part shows a secret.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from processes.commands import PASSPHRASE, SALT

from gpuform.providers.values import UNKNOWN, PropertyMap, make_secret
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Basis, Plan
from gpuform.schemas.stacks_plan import PartSchedule
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.deployment import seal_plan
from gpuform.stacks.engine.secrets import PassphraseCrypter
from gpuform.stacks.multi_stack import (
    MultiStackError,
    MultiStackWorkspace,
    StackOrder,
    WorkspaceStack,
    read_workspace,
)
from gpuform.stacks.operations.multi_stack.parts import (
    JoinedParts,
    PartFolder,
    PartRefused,
    build_part_order,
    build_schedule,
    open_upstream_parts,
    read_all_parts,
    seal_part_fields,
)
from gpuform.stacks.operations.multi_stack.stack_process import TaskResult, unpack_outputs

NAMES = ("network/dev", "training/dev")
SECRET = "planted-3f9a1c"
OUTPUTS: PropertyMap = {"size": 5.0, "id": UNKNOWN, "token": make_secret(SECRET)}


@dataclass
class PlannedFolder:
    """A workspace of two stacks, of which the second reads the first, and a folder of parts."""

    root: Path
    parts: PartFolder
    workspace: MultiStackWorkspace
    warnings: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(
        default_factory=lambda: {"PULUMI_CONFIG_PASSPHRASE": PASSPHRASE}
    )

    def plan(self, name: str, planned_with: dict[str, str] | None = None, made_at: str = "") -> str:
        """Write the part of a stack, and return the seal of its plan."""
        project, _, stack = name.partition("/")
        crypter = PassphraseCrypter(PASSPHRASE, SALT)
        plan = Plan.from_changes(project, stack, ()).model_copy(
            update={
                "made_at": made_at,
                "planned_with": planned_with or {},
                "basis": Basis(state={"urn": "1"}, config={}, program={}),
            }
        )
        plan = seal_plan(plan, crypter.compute_digest)
        fields = seal_part_fields(plan, self.parts.part_facts, OUTPUTS, crypter)
        self.parts.write_part(name, TaskResult(code=0, plan=plan, part_fields=fields))
        assert plan.basis is not None
        return plan.basis.seal

    def plan_all(self) -> None:
        seal = self.plan("network/dev")
        self.plan("training/dev", {"organization/network/dev": seal})

    def edit(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the JSON of a stack's part in place."""
        path = self.parts.get_path(name)
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    def open_upstream(self, name: str) -> TaskResult:
        """Open the part of a stack as the plan of a later stack does."""
        stack = self.workspace.stacks[name]
        return open_upstream_parts(self.parts, [stack], self.environ, None)[name]

    def join(self) -> JoinedParts:
        """Read all parts as `gpuform join` does."""
        stacks = self.workspace.stacks
        return read_all_parts(self.parts, stacks, self.environ, self.warnings.append)


@pytest.fixture
def planned(tmp_path: Path) -> PlannedFolder:
    for name in NAMES:
        project, _, stack = name.partition("/")
        folder = tmp_path / project
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(f"name: {project}\nruntime: python\n")
        (folder / f"Pulumi.{stack}.yaml").write_text(f"encryptionsalt: {SALT}\n")
    workspace = read_workspace(tmp_path, {})
    position = SourcePosition("stacks.yaml")
    order = StackOrder(
        workspace, {"network/dev": {}, "training/dev": {"network/dev": position}}, {}, {}
    )
    schedule = build_schedule(order, set(NAMES), None)
    return PlannedFolder(tmp_path, PartFolder.create(tmp_path / "parts", schedule), workspace)


def build_order(dependencies: dict[str, list[str]]) -> StackOrder:
    """Return an order of stacks that no test opens."""
    project = read_project_of_nobody()
    position = SourcePosition("stacks.yaml")
    stacks = {
        name: WorkspaceStack(project, name.partition("/")[2], "file://state", position)
        for name in dependencies
    }
    return StackOrder(
        MultiStackWorkspace(Path("/w"), stacks),
        {name: dict.fromkeys(others, position) for name, others in dependencies.items()},
        {},
        {},
    )


def read_project_of_nobody() -> Any:
    class Nobody:
        directory = Path("/w/project")

    return Nobody()


def list_waves(schedule: PartSchedule) -> list[list[str]]:
    return [[part.stacks for part in wave] for wave in schedule.waves]


def test_a_stack_is_in_the_wave_after_its_last_dependency() -> None:
    order = build_order({"d/x": ["a/x", "c/x"], "c/x": ["b/x"], "b/x": [], "a/x": [], "e/x": []})
    schedule = build_schedule(order, set(order.workspace.stacks), None)
    assert list_waves(schedule) == [["b/x", "a/x", "e/x"], ["c/x"], ["d/x"]]


@pytest.mark.parametrize(
    "name", ["a/x y", "a/$(id)", "a/*", "a/x;y", "a/\u00e9", "../x", "--json/x"]
)
def test_a_name_that_a_shell_would_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(PartRefused, match="is not a name that can be planned in parts"):
        build_schedule(build_order({name: []}), {name}, None)


def test_a_dependency_that_is_not_chosen_does_not_count() -> None:
    order = build_order({"a/x": [], "b/x": ["a/x"]})
    schedule = build_schedule(order, {"b/x"}, None)
    assert list_waves(schedule) == [["b/x"]]
    assert schedule.stacks[0].dependencies == ()
    assert build_schedule(order, set(), 3).waves == ()


def test_few_runners_share_a_wave_evenly() -> None:
    names = [f"p{number}/x" for number in range(7)]
    order = build_order({name: [] for name in names})
    schedule = build_schedule(order, set(names), 3)
    assert [part.part for part in schedule.waves[0]] == ["1-1", "1-2", "1-3"]
    assert list_waves(schedule) == [["p0/x p3/x p6/x", "p1/x p4/x", "p2/x p5/x"]]


def test_the_waves_of_a_long_chain_and_a_wide_fan_take_linear_time() -> None:
    chain = {f"p{number}/x": [f"p{number - 1}/x"] if number else [] for number in range(3000)}
    fan = {f"q{number}/x": ["p0/x"] for number in range(3000)}
    schedule = build_schedule(build_order({**chain, **fan}), {*chain, *fan}, None)
    assert len(schedule.waves) == 3000
    assert len(schedule.waves[1]) == 3001


def test_planned_outputs_travel_with_secrets_and_unknown_values(planned: PlannedFolder) -> None:
    planned.plan("network/dev")
    outputs = planned.open_upstream("network/dev").outputs
    assert outputs is not None
    received = unpack_outputs(outputs)
    assert received["size"] == 5.0
    assert received["id"] is UNKNOWN
    assert received["token"] == OUTPUTS["token"]


def test_no_file_of_the_folder_shows_a_secret_or_is_readable_by_others(
    planned: PlannedFolder,
) -> None:
    planned.plan_all()
    files = [path for path in planned.parts.path.rglob("*") if path.is_file()]
    assert len(files) == 3
    for file in files:
        assert SECRET not in file.read_text()
        assert file.stat().st_mode & 0o077 == 0


def test_joined_parts_are_the_plans_of_all_stacks(planned: PlannedFolder) -> None:
    planned.plan_all()
    joined = planned.join()
    assert list(joined.results) == [*NAMES]
    assert planned.warnings == []
    for name, result in joined.results.items():
        plan = planned.parts.read_part(name).plan
        assert joined.load_plan(name) == plan
        assert result.plan == plan.drop_digests()


def test_a_part_that_is_replaced_while_parts_are_joined_is_refused(planned: PlannedFolder) -> None:
    planned.plan_all()
    joined = planned.join()
    planned.plan("network/dev", made_at="2026-03-01T08:00:00Z")
    with pytest.raises(
        PartRefused, match=r"the part of network/dev .* was replaced during the run"
    ):
        joined.load_plan("network/dev")


def test_join_without_the_passphrase_warns_that_seals_were_not_checked(
    planned: PlannedFolder,
) -> None:
    planned.plan_all()
    planned.environ = {}
    planned.join()
    assert len(planned.warnings) == 1
    assert "the seals of 2 of 2 parts were not checked (network/dev: " in planned.warnings[0]


def test_a_missing_part_is_named_with_the_command_that_plans_it(planned: PlannedFolder) -> None:
    planned.plan("network/dev")
    with pytest.raises(PartRefused, match=r"1 of 2 stacks are missing .*: training/dev") as raised:
        planned.join()
    assert "gpuform plan-part training/dev --parts" in (raised.value.hint or "")
    planned.parts.get_path("network/dev").unlink()
    with pytest.raises(PartRefused, match="the part of network/dev is missing"):
        planned.open_upstream("network/dev")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"plans": []}', "\x00"])
def test_a_part_that_was_cut_off_or_is_another_file_is_refused(
    planned: PlannedFolder, content: str
) -> None:
    planned.plan_all()
    planned.parts.get_path("network/dev").write_text(content)
    with pytest.raises(PartRefused, match="is no part of a plan, or is damaged"):
        planned.join()


def test_a_part_under_the_name_of_another_stack_is_refused(planned: PlannedFolder) -> None:
    planned.plan_all()
    source, target = map(planned.parts.get_path, NAMES)
    target.write_bytes(source.read_bytes())
    with pytest.raises(PartRefused, match="is the part of network/dev, not of training/dev"):
        planned.join()


def test_a_file_of_no_stack_of_the_schedule_is_refused(planned: PlannedFolder) -> None:
    planned.plan_all()
    copy = planned.parts.path / "artifact-2" / "training" / "dev.json"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(planned.parts.get_path("training/dev").read_bytes())
    with pytest.raises(PartRefused, match=r"artifact-2/training/dev\.json is the part of no stack"):
        planned.join()


@pytest.mark.parametrize(
    ("fact", "label"), [("made_by", "release"), ("commit", "commit"), ("schedule", "schedule")]
)
def test_a_part_of_another_release_commit_or_schedule_is_refused(
    planned: PlannedFolder, fact: str, label: str
) -> None:
    planned.plan_all()
    planned.edit("training/dev", lambda document: document.update({fact: "other"}))
    with pytest.raises(PartRefused, match=f"the part of training/dev .* is of another {label}"):
        planned.join()


def test_a_schedule_of_another_release_or_commit_is_refused(planned: PlannedFolder) -> None:
    path = planned.parts.path
    schedule = planned.parts.schedule
    PartFolder.create(path, schedule.model_copy(update={"made_by": "gpuform 0.0.1"}))
    with pytest.raises(PartRefused, match=r"is of gpuform 0\.0\.1, but this is gpuform"):
        PartFolder.open(path, planned.root)
    PartFolder.create(path, schedule.model_copy(update={"commit": "a" * 40}))
    with pytest.raises(PartRefused, match=r"is of commit a{40}, but this is commit none"):
        PartFolder.open(path, planned.root)
    lost = schedule.stacks[1:]
    PartFolder.create(path, schedule.model_copy(update={"stacks": lost}))
    with pytest.raises(PartRefused, match="is no schedule of parts"):
        PartFolder.open(path, planned.root)
    (path / "waves.json").write_text("{}")
    with pytest.raises(PartRefused, match="is no schedule of parts"):
        PartFolder.open(path, planned.root)
    (path / "waves.json").unlink()
    with pytest.raises(PartRefused, match="cannot be read") as raised:
        PartFolder.open(path, planned.root)
    assert "--waves" in (raised.value.hint or "")


def test_a_stack_planned_again_after_its_reader_is_refused(planned: PlannedFolder) -> None:
    planned.plan_all()
    planned.plan("network/dev", made_at="2026-03-01T08:00:00Z")
    message = "the part of training/dev was planned with another part of network/dev"
    with pytest.raises(PartRefused, match=message) as raised:
        planned.join()
    assert "gpuform plan-part training/dev" in (raised.value.hint or "")


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "output": lambda document: document["outputs"].update({"size": 6}),
    "output removed": lambda document: document["outputs"].pop("token"),
    "secret moved": lambda document: document["outputs"].update(
        {"a": document["outputs"]["token"]}
    ),
    "plan": lambda document: document["plan"].update({"made_at": "2027"}),
    "plan without seal": lambda document: document["plan"]["basis"].pop("seal"),
    "seal": lambda document: document.update({"seal": "0" * 32}),
    "no seal": lambda document: document.pop("seal"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_part_is_refused_by_the_next_part_and_by_join(
    planned: PlannedFolder, edit: str
) -> None:
    planned.plan("network/dev")
    planned.plan("training/dev")
    planned.edit("network/dev", EDITS[edit])
    message = r"the part of network/dev \(.*\) was edited after it was made"
    with pytest.raises(PartRefused, match=message):
        planned.open_upstream("network/dev")
    with pytest.raises(PartRefused, match=message):
        planned.join()


def test_a_runner_with_another_passphrase_cannot_read_a_part(planned: PlannedFolder) -> None:
    planned.plan("network/dev")
    planned.environ["PULUMI_CONFIG_PASSPHRASE"] = "another"
    message = "the part of network/dev cannot be checked without the key of network/dev"
    with pytest.raises(PartRefused, match=message) as raised:
        planned.open_upstream("network/dev")
    assert "plan the stacks in one part" in (raised.value.hint or "")


def test_only_the_stacks_of_a_part_and_those_they_read_are_opened(planned: PlannedFolder) -> None:
    # A project that nobody of this part reads may be broken.
    order, upstream = build_part_order(planned.parts, ["network/dev"], planned.root, {})
    assert (list(order.workspace.stacks), upstream) == (["network/dev"], [])
    order, upstream = build_part_order(planned.parts, ["training/dev"], planned.root, {})
    assert upstream == ["network/dev"]
    assert set(order.dependencies["training/dev"]) == {"network/dev"}
    order, upstream = build_part_order(planned.parts, NAMES, planned.root, {})
    assert upstream == []
    with pytest.raises(PartRefused, match=r"other/dev: not in .*waves\.json"):
        build_part_order(planned.parts, ["other/dev"], planned.root, {})


@pytest.mark.parametrize("folder", ["/etc", "../outside", "training", "nowhere"])
def test_a_schedule_that_leads_to_another_folder_is_refused(
    planned: PlannedFolder, folder: str
) -> None:
    (planned.root.parent / "outside").mkdir(exist_ok=True)
    stacks = [
        stack.model_copy(update={"folder": folder}) if stack.name == "network/dev" else stack
        for stack in planned.parts.schedule.stacks
    ]
    schedule = planned.parts.schedule.model_copy(update={"stacks": tuple(stacks)})
    parts = PartFolder.create(planned.parts.path, schedule)
    with pytest.raises(MultiStackError, match="is not the folder of this stack"):
        build_part_order(parts, ["network/dev"], planned.root, {})


def test_join_in_another_folder_names_the_stacks_that_are_not_there(
    planned: PlannedFolder,
) -> None:
    planned.plan_all()
    stacks = {"network/dev": planned.workspace.stacks["network/dev"]}
    with pytest.raises(EngineError, match="has stacks that are not in this folder: training/dev"):
        read_all_parts(planned.parts, stacks, planned.environ, planned.warnings.append)
