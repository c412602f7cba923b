"""Test plans and documents of scenarios, each of which is a folder.

`before.yaml` made `state.json`; `topology.yaml` is planned on it, without one the stack is
destroyed. GPUFORM_UPDATE_GOLDEN=1 writes the plan and the documents again, and a missing state.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.emulated import Platform, start_emulated_platform
from conformance.stacks import EmbeddedStack
from support.readers.review_documents import RENDERERS, parse_html, parse_markdown

from gpuform.providers.emulator.server import environment
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.operations.runs.evaluator import RunRecord
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_files import read_plan

FOLDER = Path(__file__).parent / "scenarios"
SCENARIOS = sorted(path.name for path in FOLDER.iterdir())
DOCUMENTS = {"text": "txt", "markdown": "md", "github": "github.md", "html": "html", "json": ""}
PROGRAM = "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
VARYING_KEYS = ("sourcePosition", "stackTrace", "created", "modified")
"""Keys of a state whose values depend on the machine and the time."""

UPDATING = os.environ.get("GPUFORM_UPDATE_GOLDEN") == "1"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Platform]:
    with start_emulated_platform(seed="review") as platform:
        yield platform


@pytest.fixture(scope="module")
def crypter() -> PassphraseCrypter:
    return PassphraseCrypter.create_new("test only")


@pytest.fixture
def stack(
    emulator: Platform,
    crypter: PassphraseCrypter,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> EmbeddedStack:
    emulator.reset()
    for name, value in environment(emulator.server.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    made = EmbeddedStack(tmp_path, crypter)
    (tmp_path / "__main__.py").write_text(PROGRAM)
    return made


def build_plan(stack: EmbeddedStack, scenario: Path) -> Plan:
    """Return the plan that the engine makes from the scenario's state and topology."""
    state = scenario / "state.json"
    if state.exists():
        snapshot = Snapshot.from_json(state.read_bytes(), None)
        write_state(stack, snapshot.to_json(stack.crypter))
    topology = scenario / "topology.yaml"
    if topology.exists():
        (stack.directory / "topology.yaml").write_text(topology.read_text())
    operation = "update" if topology.exists() else "destroy"
    stack.run(operation, preview=True)
    assert stack.list_messages("error") == []
    record = RunRecord()
    for event in stack.events:
        record(event)
    assert stack.outcome is not None
    plan = record.build_plan("conformance", "dev", stack.outcome)
    in_order = sorted(plan.changes, key=lambda change: change.urn)
    return plan.model_copy(update={"changes": tuple(in_order), "operation": operation})


def write_state(stack: EmbeddedStack, data: bytes) -> None:
    stack.build_target().write(data)


def create_state_file(stack: EmbeddedStack, scenario: Path) -> None:
    before = scenario / "before.yaml"
    if before.exists() and not (scenario / "state.json").exists():
        (stack.directory / "topology.yaml").write_text(before.read_text())
        stack.run("update")
        assert stack.list_messages("error") == []
        state = json.loads(stack.snapshot.to_json(None, show_secrets=True))
        for resource in state["checkpoint"]["latest"]["resources"]:
            for name in VARYING_KEYS:
                resource.pop(name, None)
        (scenario / "state.json").write_text(json.dumps(state, indent=1) + "\n")


def compare_golden(path: Path, text: str) -> None:
    if UPDATING:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_renders_its_golden_documents(stack: EmbeddedStack, name: str) -> None:
    scenario = FOLDER / name
    if UPDATING:
        create_state_file(stack, scenario)
    plan = build_plan(stack, scenario)
    compare_golden(scenario / "plan.json", plan.model_dump_json(indent=2) + "\n")
    read = read_plan("plan.json", (scenario / "plan.json").read_bytes())
    assert read.model_dump() == plan.model_dump()
    review = Review([StackFacts(read, "plan.json")])
    for form, ending in DOCUMENTS.items():
        rendered = RENDERERS[form](review)
        assert "lanted" not in rendered, "no secret, old or new"
        if ending:
            compare_golden(scenario / f"plan.{ending}", rendered.rstrip("\n") + "\n")


def test_the_scenarios_include_every_platform() -> None:
    texts = "".join((FOLDER / name / "plan.json").read_text() for name in SCENARIOS)
    for platform in ("together", "scp", "tensorone", "aios", "lens"):
        assert f"gpuform.{platform}:" in texts


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_golden_documents_are_well_formed(name: str) -> None:
    plan = read_plan("plan.json", (FOLDER / name / "plan.json").read_bytes())
    parse_html((FOLDER / name / "plan.html").read_text())
    document = parse_markdown((FOLDER / name / "plan.github.md").read_text())
    assert document.headings[0].startswith("gpuform plan: `conformance/dev`")
    visible_count = sum(change.action != "same" for change in plan.changes)
    assert document.html.count("<details>") >= visible_count
