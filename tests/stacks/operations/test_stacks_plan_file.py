"""The file of a multi-stack plan: what a run reads of it, and what nobody can do to it unnoticed.

Attacks on the file between the review and the apply: a stack is removed, repeated or added; the
plan of a stack is replaced by one of another planning; the plans are reordered; a plan, its exports
or the list of stacks are edited, with or without the digests that anybody can compute.
"""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes.commands import PASSPHRASE, SALT

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Basis, OutputChange, Plan
from gpuform.schemas.stacks_plan import StacksPlan, compute_stacks_digest
from gpuform.stacks.engine.deployment import is_sealed, seal_plan
from gpuform.stacks.engine.secrets import PassphraseCrypter
from gpuform.stacks.operations.runs.plan_file import PlanRefused, write_plan
from gpuform.stacks.operations.runs.stacks_plan_file import (
    StacksPlanFile,
    require_stacks_digest,
    write_stacks_plan,
)
from gpuform.stacks.review.plan_files import read_plans

NAMES = ("network/dev", "training/dev", "report/dev")
KEY = PassphraseCrypter(PASSPHRASE, SALT).compute_digest

Document = dict[str, Any]


def build_stack_plan(name: str, names: tuple[str, ...], commit: str, made_at: str = "") -> Plan:
    """Return the sealed plan of a stack that was planned together with others."""
    project, _, stack = name.partition("/")
    plan = Plan.from_changes(project, stack, ()).model_copy(
        update={
            "made_at": made_at,
            "outputs": (OutputChange(name="region", action="add", after="us-1"),),
            "stacks_digest": compute_stacks_digest(commit, names),
            "basis": Basis(state={"urn": "1" * 32}, config={}, program={"urn": {"inputs.a": "2"}}),
        }
    )
    return seal_plan(plan, KEY)


def build_plan(names: tuple[str, ...] = NAMES, commit: str = "c0ffee", at: str = "") -> StacksPlan:
    plans = tuple(build_stack_plan(name, names, commit, at) for name in names)
    return StacksPlan(name="fleet", commit=commit, plans=plans)


@dataclass
class SavedFile:
    """A saved plan of three stacks, and its digest as the reviewers saw it."""

    path: Path
    digest: str

    def edit(self, change: Callable[[Document], object]) -> None:
        """Change the plan in place, and write it in the layout of gpuform."""
        document = json.loads(self.path.read_bytes())
        change(document)
        plans = [json.dumps(plan, separators=(",", ":")) for plan in document.pop("plans")]
        head = json.dumps(document, separators=(",", ":")).removesuffix("}")
        lines = ",\n".join(plans)
        self.path.write_text(f'{head},"plans":[\n{lines}\n]}}\n')

    def list_appliable_names(self) -> list[str]:
        """Return the stacks whose process would apply its plan: the seal is that of its key."""
        plan_file = StacksPlanFile.open(self.path)
        names = [plan.project_stack for plan in plan_file.load_all().plans]
        return [name for name in names if is_sealed(plan_file.load_content(name), KEY)]


@pytest.fixture
def saved(tmp_path: Path) -> SavedFile:
    path = tmp_path / "plan.json"
    write_stacks_plan(path, build_plan(), None)
    saved = SavedFile(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert saved.list_appliable_names() == [*NAMES]
    return saved


def replace_plan(*others: StacksPlan) -> Callable[[Document], object]:
    """Return an edit that takes the second plan from another planning, with a genuine seal."""
    plan = json.loads(others[0].plans[1].model_dump_json())
    return lambda document: document["plans"].__setitem__(1, plan)


def add_plan(document: Document) -> None:
    """Add the plan of a stack that somebody with its key has planned alone."""
    plan = build_plan(("other/dev",)).plans[0]
    document["plans"].append(json.loads(plan.model_dump_json()))


def set_digests(document: Document) -> None:
    """Compute the digests of the plans again, as anybody can without a key."""
    names = [f"{plan['project']}/{plan['stack']}" for plan in document["plans"]]
    for plan in document["plans"]:
        plan["stacks_digest"] = compute_stacks_digest(document["commit"], names)


REFUSED_ATTACKS: dict[str, tuple[Callable[[Document], object], str]] = {
    "first removed": (lambda document: document["plans"].pop(0), "exactly the stacks"),
    "last removed": (lambda document: document["plans"].pop(), "exactly the stacks"),
    "all but one removed": (lambda document: document["plans"].__delitem__(slice(1, 3)), "exactly"),
    "repeated": (
        lambda document: document["plans"].append(document["plans"][0]),
        "two plans are for one stack",
    ),
    "repeated in place of another": (
        lambda document: document["plans"].__setitem__(1, document["plans"][0]),
        "two plans are for one stack",
    ),
    "added": (add_plan, "exactly the stacks|not made together with the others: other/dev"),
    "of another commit": (
        replace_plan(build_plan(commit="badc0de")),
        "not made together with the others: training/dev",
    ),
    "of other stacks": (
        replace_plan(build_plan(NAMES[:2])),
        "not made together with the others: training/dev",
    ),
    "planned alone": (
        lambda document: document["plans"][1].update({"stacks_digest": ""}),
        "not made together with the others: training/dev",
    ),
    "commit": (lambda document: document.update({"commit": "badc0de"}), "exactly the stacks"),
    "renamed": (
        lambda document: document["plans"][1].update({"project": "other"}),
        "exactly the stacks",
    ),
}


@pytest.mark.parametrize("attack", REFUSED_ATTACKS)
def test_a_file_with_other_stacks_is_refused_without_a_key(saved: SavedFile, attack: str) -> None:
    edit, message = REFUSED_ATTACKS[attack]
    saved.edit(edit)
    with pytest.raises(EngineError, match=message):
        StacksPlanFile.open(saved.path)


@pytest.mark.parametrize("attack", ["last removed", "added", "commit", "renamed"])
def test_no_plan_is_applied_if_somebody_computes_the_digests_again(
    saved: SavedFile, attack: str
) -> None:
    edit, _ = REFUSED_ATTACKS[attack]
    saved.edit(lambda document: (edit(document), set_digests(document)))
    # Every seal covers the digest of all stacks: nothing of the file can be applied.
    assert saved.list_appliable_names() == []


@pytest.mark.parametrize(
    ("name", "edit"),
    {
        "exports": lambda plan: plan["outputs"][0].update({"after": "us-2"}),
        "export removed": lambda plan: plan.update({"outputs": []}),
        "time": lambda plan: plan.update({"made_at": "2027"}),
        "readers": lambda plan: plan.update({"planned_with": {"organization/other/dev": "0"}}),
    }.items(),
)
def test_an_edited_plan_of_a_stack_is_not_applied(
    saved: SavedFile, name: str, edit: Callable[[Document], object]
) -> None:
    saved.edit(lambda document: edit(document["plans"][1]))
    assert saved.list_appliable_names() == ["network/dev", "report/dev"], name


@pytest.mark.parametrize(
    "edit",
    [
        *(edit for edit, _ in REFUSED_ATTACKS.values()),
        # The order of the file is no order of the apply, and a plan of the same stacks at the same
        # commit is a valid plan: only the reviewers know that it is another one.
        lambda document: document["plans"].reverse(),
        replace_plan(build_plan(at="2027-01-01T00:00:00Z")),
        lambda document: document.update({"gates": None, "weakened_gates": ["edited"]}),
    ],
)
def test_the_digest_of_the_review_covers_every_byte(
    saved: SavedFile, edit: Callable[[Document], object]
) -> None:
    require_stacks_digest(StacksPlanFile.open(saved.path), saved.digest)
    saved.edit(edit)
    try:
        plan_file = StacksPlanFile.open(saved.path)
    except EngineError:
        return
    with pytest.raises(PlanRefused, match="is not the reviewed plan: its digest is"):
        require_stacks_digest(plan_file, saved.digest)


def test_a_digest_without_a_plan_is_refused() -> None:
    with pytest.raises(PlanRefused, match="a digest was given, but no saved plan"):
        require_stacks_digest(None, "0" * 64)


def test_a_run_of_one_stack_reads_only_its_plan(saved: SavedFile) -> None:
    saved.edit(lambda document: document["plans"][2].update({"changes": "damaged"}))
    plan_file = StacksPlanFile.open(saved.path)

    assert plan_file.load_plan("training/dev") == build_plan().plans[1]
    assert [plan.project_stack for plan in plan_file.outline.plans] == [*NAMES]
    with pytest.raises(EngineError, match=r"plan\.json \(report/dev\) is not a plan: changes"):
        plan_file.load_plan("report/dev")


def test_loaded_plans_share_what_pydantic_keeps_for_each_model(saved: SavedFile) -> None:
    plans = StacksPlanFile.open(saved.path).load_changes(NAMES).plans
    outputs = [plan.outputs[0] for plan in plans]
    assert len({id(output.model_fields_set) for output in outputs}) == 1
    renamed = outputs[0].model_copy(update={"name": "other", "sensitive": True})
    assert outputs[1] == build_plan().plans[1].outputs[0]
    assert renamed.model_fields_set - outputs[1].model_fields_set == {"sensitive"}


def test_a_file_that_is_replaced_during_the_run_is_not_applied(saved: SavedFile) -> None:
    plan_file = StacksPlanFile.open(saved.path)
    write_stacks_plan(saved.path, build_plan(at="2027-01-01T00:00:00Z"), None)
    with pytest.raises(PlanRefused, match="was replaced during the run"):
        plan_file.load_plan("training/dev")
    saved.path.unlink()
    with pytest.raises(PlanRefused, match="cannot be read"):
        plan_file.load_plan("training/dev")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_a_plan_that_a_pipe_gives_once_is_read(saved: SavedFile) -> None:
    pipe = saved.path.with_name("pipe")
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(pipe.write_bytes, saved.path.read_bytes())
        plan_file = StacksPlanFile.open(pipe)
    pipe.unlink()
    assert plan_file.digest == saved.digest
    assert plan_file.load_plan("training/dev") == build_plan().plans[1]


def test_another_layout_of_the_same_plan_is_read(saved: SavedFile) -> None:
    saved.path.write_text(build_plan().model_dump_json(indent=2))
    plan_file = StacksPlanFile.open(saved.path)
    assert plan_file.load_all() == build_plan()
    assert plan_file.digest == hashlib.sha256(saved.path.read_bytes()).hexdigest()
    assert read_plans("plan.json", saved.path.read_bytes()) == build_plan()


@pytest.mark.parametrize(
    "cut",
    [
        lambda text: text[:-3],
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(",\n", "\n", 1),
        lambda text: text + "{}\n",
        lambda text: text.replace("\n]}", ",\n]}"),
    ],
)
def test_a_file_that_is_no_json_document_is_refused(
    saved: SavedFile, cut: Callable[[str], str]
) -> None:
    saved.path.write_text(cut(saved.path.read_text()))
    for read in (
        StacksPlanFile.open,
        lambda path: read_plans("plan.json", path.read_bytes()),
    ):
        with pytest.raises(EngineError, match=r"is not JSON|more than one|is the output of"):
            read(saved.path)


def test_the_plan_of_each_stack_is_one_line_of_a_json_document(saved: SavedFile) -> None:
    text = saved.path.read_text()
    assert json.loads(text) == json.loads(build_plan().model_dump_json())
    assert len(text.splitlines()) == len(NAMES) + 2
    assert read_plans("plan.json", text.encode()) == build_plan()
    brief = tuple(plan.drop_digests() for plan in build_plan().plans)
    read = read_plans("plan.json", text.encode(), keeps_digests=False)
    assert read == build_plan().model_copy(update={"plans": brief})
    assert [plan.basis and plan.basis.state for plan in brief] == [{}] * len(NAMES)


def test_a_plan_of_one_stack_says_how_it_is_applied(saved: SavedFile) -> None:
    write_plan(saved.path, build_plan().plans[0])
    with pytest.raises(PlanRefused, match="is a plan of a single stack"):
        StacksPlanFile.open(saved.path)
