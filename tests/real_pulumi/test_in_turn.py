"""Both engines in turn on one stack, through every ordinary change."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import pytest
from processes.commands import Cli, pulumi
from support.stacks.scenario_replay import HEAD, Replay

SHARED: Final = """\
from pulumi import Output, StackReference, get_stack
if get_stack() == 'other':
    export('given', 'x')
    export('hidden', Output.secret('y'))
"""

FIRST: Final = """\
a = Thing('a', size=1)
b = Thing('b', made_from=a.made)
folder = Folder('folder')
child = Thing('child', ResourceOptions(parent=folder), zone='z1', of=b.made)
hidden = Thing('hidden', password=Config().require_secret('token'))
export('made', a.made)
export('password', Config().require_secret('token'))
"""

UPDATED: Final = FIRST.replace("size=1", "size=2")
REPLACED: Final = UPDATED.replace("size=2", "size=2, region='r2'").replace("'z1'", "'z2'")
RENAMED: Final = REPLACED.replace(
    "Thing('b', ", "Thing('new', ResourceOptions(aliases=[Alias(name='b')]), label='b', "
)
PROTECTED: Final = RENAMED.replace(
    "Thing('hidden', ", "Thing('hidden', ResourceOptions(protect=True), "
)
REFERRING: Final = (
    RENAMED
    + """\
other = StackReference('organization/rec/other')
Thing('far', given=other.get_output('given'), secret=other.get_output('hidden'))
export('far', other.get_output('hidden'))
"""
)
DRIFTED: Final = REFERRING.replace("size=2, ", "size=7, ")
FEWER: Final = DRIFTED.replace("export('made', a.made)\n", "")
TARGETED: Final = FEWER.replace("size=7, ", "size=8, ")
IMPORTED: Final = (
    TARGETED + "Thing('found', ResourceOptions(import_='there-1'), label='there', size=3)\n"
)

STEPS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("create", {"program": FIRST, "config": {"token": "hunter2"}}),
    ("update", {"program": UPDATED}),
    ("replace", {"program": REPLACED}),
    ("rename with an alias", {"program": RENAMED}),
    ("protect", {"program": PROTECTED}),
    ("unprotect, and another secret", {"program": RENAMED, "config": {"token": "hunter3"}}),
    ("refer to a stack", {"program": REFERRING}),
    ("refresh", {"program": DRIFTED, "run": "refresh", "others": {"a-2": {"size": 7}}}),
    ("an output less", {"program": FEWER}),
    ("a target", {"program": TARGETED, "flags": ["--target", "**::a"]}),
    ("import", {"program": IMPORTED, "others": {"there-1": {"label": "there", "size": 3}}}),
    ("delete", {"program": TARGETED}),
    ("destroy", {"program": TARGETED, "run": "destroy"}),
]

GPUFORM_ALONE: Final = ("import",)
"""The CLI's host of dynamic providers cannot read what it has not made."""


@pytest.mark.parametrize(
    "zipped",
    [
        pytest.param(False, id="pulumi-begins", marks=pytest.mark.in_every_run),
        pytest.param(True, id="gpuform-begins-gzip"),
    ],
)
def test_both_tools_show_the_same_state_after_each_command(
    zipped: bool, tmp_path: Path, gpuform: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    if zipped:
        monkeypatch.setenv("PULUMI_SELF_MANAGED_STATE_GZIP", "true")
    engines = [gpuform, pulumi] if zipped else [pulumi, gpuform]
    stack = Replay.create(tmp_path, engines[0])
    make_other(stack)
    actors = []
    for number, (name, step) in enumerate(STEPS):
        stack.cli = actor = gpuform if name in GPUFORM_ALONE else engines[number % 2]
        run_step(stack, **step)
        actors.append("Pulumi CLI" if actor is pulumi else "gpuform")
        exports = [export_state(stack, engine) for engine in engines]
        assert exports[0] == exports[1], name
        stack.cli = pulumi
        ran = stack.run("stack")
        assert ran.code == 0, (name, ran.stderr)
        if name != "destroy":
            stack.cli = gpuform if actor is pulumi else pulumi
            news = stack.run("preview", "--expect-no-changes")
            assert news.code == 0, (name, news.stdout, news.stderr)
    stored = {path.name for path in (tmp_path / "state/.pulumi/stacks/rec").iterdir()}
    assert ("dev.json.gz" in stored, "dev.json" in stored) == (zipped, not zipped)
    assert "resources" not in export_state(stack, pulumi)["deployment"]
    stack.cli = gpuform
    check_explanation(stack, actors)


def check_explanation(stack: Replay, actors: Sequence[str]) -> None:
    """Check that `gpuform explain` attributes each change of `a` to its run, by either tool."""
    explanation = json.loads(stack.run("explain", "a", "--json").stdout)
    events = [(it["action"], STEPS[it["run"] - 1][0]) for it in explanation["events"]]
    assert events[0] == ("created", "create")
    assert ("changed", "update") in events
    assert {("created", "replace"), ("deleted", "replace")} <= {*events}
    assert events[-1] == ("deleted", "destroy")
    engines = {run["number"]: run["engine"] for run in explanation["runs"]}
    assert engines
    for number, engine in engines.items():
        assert engine.startswith(actors[number - 1]), (number, engine, actors)


def run_step(
    stack: Replay,
    program: str,
    run: str = "up",
    config: Mapping[str, str] | None = None,
    others: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
) -> None:
    project = stack.folder / "project"
    for key, value in (config or {}).items():
        assert stack.run("config", "set", key, value, "--secret").code == 0
    if others:
        platform = json.loads((project / "platform.json").read_text())
        for id_, properties in others.items():
            platform["objects"].setdefault(id_, {}).update(properties)
        (project / "platform.json").write_text(json.dumps(platform))
    (project / "__main__.py").write_text(f"{HEAD}{SHARED}else:\n{indent(program, '    ')}")
    done = stack.run(run, *flags, "--yes", "--skip-preview")
    assert done.code == 0, done.stdout + done.stderr


def make_other(stack: Replay) -> None:
    """Create the referenced stack; dev stays selected."""
    settings = (stack.folder / "project/Pulumi.dev.yaml").read_text()
    (stack.folder / "project/Pulumi.other.yaml").write_text(settings)
    (stack.folder / "project/__main__.py").write_text(HEAD + SHARED)
    assert stack.run("stack", "init", "other").code == 0
    done = stack.run("up", "--yes", "--skip-preview")
    assert done.code == 0, done.stderr
    assert stack.run("stack", "select", "dev").code == 0


def export_state(stack: Replay, engine: Cli) -> Mapping[str, Any]:
    stack.cli = engine
    done = stack.run("stack", "export", "--show-secrets")
    assert done.code == 0, done.stderr
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document
