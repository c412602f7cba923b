"""Test reviews of the present Pulumi CLI's previews, in each form and of each operation."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from processes.commands import pulumi
from support.readers.review_documents import RENDERERS
from support.stacks.scenario_replay import HEAD, Replay

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_files import read_plan

BEFORE: Final = "a = Thing('a', size=1)\nThing('b', zone='x')\nThing('c')\nexport('made', a.made)\n"
AFTER: Final = "a = Thing('a', size=2)\nThing('b', zone='y')\nThing('d')\nexport('made', a.made)\n"


@pytest.fixture(scope="module")
def existing_stack(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    stack = Replay.create(tmp_path_factory.mktemp("reviewed"), pulumi)
    assert stack.play_step("up", BEFORE)["succeeded"]
    return stack


def write_program(existing_stack: Replay, program: str) -> None:
    (existing_stack.folder / "project/__main__.py").write_text(HEAD + program)


def run_json(existing_stack: Replay, *command: str, stream: bool = False) -> bytes:
    """Run a command with `--json`, and return its stdout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULUMI_ENABLE_STREAMING_JSON_PREVIEW", str(stream).lower())
        return existing_stack.run(*command, "--json").stdout.encode()


def run_logged(existing_stack: Replay, *command: str) -> bytes:
    log = existing_stack.folder / "log.jsonl"
    existing_stack.run(*command, "--event-log", str(log))
    return log.read_bytes()


def review(content: bytes) -> tuple[Plan, str]:
    plan = read_plan("told.json", content)
    changes = sorted(plan.changes, key=lambda change: change.urn)
    plan = plan.model_copy(update={"changes": tuple(changes)})
    return plan, RENDERERS["text"](Review([StackFacts(plan, "told.json")]))


def test_each_format_of_a_preview_gives_the_same_review(existing_stack: Replay) -> None:
    write_program(existing_stack, AFTER)
    contents: Sequence[bytes] = [
        run_json(existing_stack, "preview"),
        run_json(existing_stack, "preview", stream=True),
        run_logged(existing_stack, "preview"),
    ]
    (plan, review_text), *others = map(review, contents)
    assert others == [(plan, review_text)] * 2
    assert plan.summary == {"create": 1, "update": 1, "replace": 1, "delete": 1}
    with pytest.raises(EngineError, match="ends in the middle of a run"):
        read_plan("told.json", contents[1][:-40])


def test_a_destroy_and_a_refresh_are_recognized_as_such(existing_stack: Replay) -> None:
    write_program(existing_stack, BEFORE)
    for content in (
        run_json(existing_stack, "destroy", "--preview-only"),
        run_json(existing_stack, "destroy", "--preview-only", "--target", "**::a"),
    ):
        plan, review_text = review(content)
        assert plan.operation == "destroy"
        assert "in the program" not in review_text
        assert "gpuform destroy --stack dev" in review_text
    platform = existing_stack.folder / "project/platform.json"
    objects = json.loads(platform.read_text())
    gone = {key: value for key, value in objects["objects"].items() if key != "c-1"}
    platform.write_text(json.dumps({**objects, "objects": gone}))
    plan, review_text = review(run_json(existing_stack, "refresh", "--preview-only"))
    platform.write_text(json.dumps(objects))
    assert plan.operation == "refresh"
    assert "delete: no longer exists on the platform" in review_text
    assert "gpuform refresh --stack dev" in review_text


@pytest.mark.parametrize(
    ("more", "why"),
    [("raise ValueError('no luck')\n", "no luck"), ("Thing('z', size=-1)\n", "must not be -1")],
)
def test_a_failed_preview_gives_a_failed_review(
    existing_stack: Replay, more: str, why: str
) -> None:
    write_program(existing_stack, AFTER + more)
    plan, review_text = review(run_json(existing_stack, "preview"))
    assert why in "\n".join(plan.errors)
    assert review_text.startswith("Failed:\n")
    assert "gpuform up" not in review_text


def test_an_empty_output_of_the_cli_is_not_a_plan(existing_stack: Replay, tmp_path: Path) -> None:
    """The CLI refuses before the operation begins, and prints nothing to stdout."""
    done = pulumi(tmp_path, "preview", "--json", "--non-interactive", PULUMI_HOME=str(tmp_path))
    assert done.code != 0
    with pytest.raises(EngineError, match="is not a plan: it is empty"):
        read_plan("told.json", done.stdout.encode())
