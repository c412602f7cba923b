"""Test that output never contains commands for terminals or CI systems, from any source."""

import ast
import io
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.clocks.fake_clock import FakeClock

from gpuform.providers.emulator.server import environment, serve
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.terminal.progress import LiveProgress
from gpuform.stacks.cli.terminal.screen import Screen, escape_text
from gpuform.stacks.engine.planning import Op, Progress, Step, StepStarted
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.manifests import ClusterClaims, render_manifests
from gpuform.stacks.operations.runs.run_log import Stopwatch
from gpuform.stacks.review.paint import STYLED, Paint

Run = Any

PIECES = (
    *("::error::x", "::set-output name=a::b", "##[error]x", "##vso[task.setvariable]x", "::", "#"),
    *("##teamcity[x]", "\x1b[31m", "\x1b]0;title\x07", "\x1b[2J", "\x9b2J", "\r", "\n", "\t", " "),
    *("\xa0", "\u3000", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\x85", "\0", "a", "ä"),
    *("[red]", "[/]", "\ud800", "\U000e0041", "\u0600"),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=20)


def find_control_characters(text: str) -> list[str]:
    return [
        character
        for character in text
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]


def find_ci_commands(log: str) -> list[str]:
    """Return the lines that GitHub's runner, Azure's agent or TeamCity would execute."""
    lines = re.split(r"\r\n|\r|\n", log)
    return [
        line
        for line in lines
        if line.lstrip().startswith("::") or re.search(r"##(\[|vso\[|teamcity\[)", line)
    ]


@given(TEXTS)
def test_escaped_text_has_no_terminal_controls(text: str) -> None:
    assert set(find_control_characters(escape_text(text, color=False, in_ci=False))) <= {"\n", "\t"}
    colored = escape_text(text, color=True, in_ci=False)
    assert set(find_control_characters(STYLED.sub("", colored))) <= {"\n", "\t"}


@pytest.mark.slow
@pytest.mark.sampled(1)
@given(TEXTS)
def test_escaped_text_has_no_commands_of_ci_systems(text: str) -> None:
    assert find_ci_commands(escape_text(text, color=False, in_ci=True)) == []


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters=":#")))
def test_readable_text_stays_unchanged(text: str) -> None:
    assert escape_text(text, color=False, in_ci=True) == text


@pytest.mark.parametrize("style", ["add", "remove", "change", "replace", "error", "dim", "bold"])
def test_own_styles_stay_only_with_color(style: str) -> None:
    styled = Paint(color=True)(style, "said")
    assert escape_text(styled, color=True, in_ci=True) == styled
    assert "\x1b" not in escape_text(styled, color=False, in_ci=True)


@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS), max_size=4))
def test_escaped_json_keeps_its_meaning(value: dict[str, Any]) -> None:
    for escaped_json in (format_json(value, compact=True), format_json(value, indent=2)):
        assert json.loads(escaped_json) == value
        assert set(find_control_characters(escaped_json)) <= {"\n"}
        assert find_ci_commands(escaped_json) == []
        escaped_json.encode()
    assert len(format_json(value, compact=True).splitlines()) == 1


@given(TEXTS)
def test_only_unescaped_lines_are_commands_in_a_log(text: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err, Paint(), interactive=False, in_ci=True)
    screen.print_unescaped("::group::Updating")
    screen.print(text)
    screen.warn(text)
    assert find_ci_commands(out.getvalue()) == ["::group::Updating"]
    assert find_ci_commands(err.getvalue()) == []


@given(TEXTS)
def test_a_phase_is_plain_text_in_the_live_display(phase: str) -> None:
    screen = Screen(io.StringIO(), io.StringIO(), Paint(), interactive=True)
    live = LiveProgress(screen, Stopwatch(FakeClock()))
    live.close()
    state = ResourceState(urn=URN, type=URN.split("::")[2], custom=True)
    live(StepStarted(Step(Op.CREATE, URN, new=state), False))
    live(Progress(URN, phase))
    display = io.StringIO()
    Console(file=display, width=2000, color_system=None).print(live.build_table())
    (line,) = display.getvalue().splitlines()
    assert "creating" in line
    assert find_control_characters(line) == []


HOSTILE = "\n::error::no\nHost *\n    ProxyCommand touch /tmp/owned \x1b]0;x\x07\u202e"


URN = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"


def import_state(dev: Run, project: Path, exported: dict[str, Any], **entry: Any) -> None:
    """Import a state with a cluster and stack outputs, as somebody else might have written it."""
    stack = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
    resources = [
        {"urn": stack, "type": "pulumi:pulumi:Stack", "outputs": exported},
        {"urn": URN, "type": URN.split("::")[2], "custom": True, "parent": stack, **entry},
    ]
    document = {"version": 3, "deployment": {"manifest": {}, "resources": resources}}
    (project / "given.json").write_text(json.dumps(document))
    assert dev("stack", "import", "--file", "given.json", "--force").code == 0


@pytest.fixture
def hostile_stack(dev: Run, project: Path) -> Run:
    """Import a state whose texts somebody has chosen to attack terminals and CI systems."""
    worker = {"host_name": f"n{HOSTILE}", "node_id": f"w{HOSTILE}", "status": HOSTILE}
    good = {"host_name": "train-worker-1", "node_id": "w1", "status": "Running"}
    outputs = {
        "cluster_name": f"train{HOSTILE}",
        "status": HOSTILE,
        "not_ready_reason": HOSTILE,
        "ready": False,
        "gpu_worker_nodes": [worker, good],
    }
    exported = {"said": HOSTILE, HOSTILE: "x"}
    import_state(dev, project, exported, id=f"id{HOSTILE}", inputs=outputs, outputs=outputs)
    return dev


@pytest.mark.parametrize(
    "words",
    [
        ("stack", "output"),
        ("state", "list"),
        ("status",),
        ("ssh-config", "--offline"),
        ("ssh-config", "--offline", "--print"),
        ("connect", "train", "--offline", "--print", "--node", "train-worker-1"),
        ("connect", "train", "--offline", "--print", "--node", "none"),
        ("kubeconfig", "--offline"),
        ("graph", "--stack", "dev"),
        ("graph", "--stack", "dev", "--format", "mermaid"),
    ],
)
def test_a_hostile_state_commands_nothing(
    hostile_stack: Run, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "me")
    monkeypatch.setenv("TOGETHER_API_KEY", "none")
    monkeypatch.setenv("TOGETHER_BASE_URL", "http://127.0.0.1:1")
    ran = hostile_stack(*words)
    output = ran.out + ran.err
    assert "Traceback" not in output
    assert ran.code != 255, output
    assert set(find_control_characters(output)) <= {"\n"}
    assert not re.search(r"^\s*(::error|Host \*|ProxyCommand)", output, re.MULTILINE), output


def test_a_message_of_a_platform_is_no_command_in_a_ci_job(
    dev: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(seed="harmless") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        error_body = {"error": {"message": f"{HOSTILE} ##[error]x ##vso[task.x]y"}}
        rule = {"method": "POST", "path": "^/compute/clusters", "status": 400, "body": error_body}
        httpx.post(f"{server.url}/_emulator/faults", json=rule, verify=False).raise_for_status()
        monkeypatch.delenv("PULUMI_DISABLE_CI_DETECTION", raising=False)
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        ran = dev("up", "--yes", "--skip-preview")
    assert ran.code == 1
    assert "ProxyCommand" in ran.out
    assert find_ci_commands(ran.out + ran.err) == [
        "::group::Updating (dev, emulated)",
        "::endgroup::",
    ]
    assert set(find_control_characters(ran.out + ran.err)) <= {"\n"}


QUOTES = '\n"\')\nimport os\nos.abort()\n# {{ 7 * 7 }} {% raw %} ${x} \\ """ \u202e \u2028'
DECLARED = {
    "cluster_name": f"t{QUOTES}",
    "region": f"r{QUOTES}",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "driver_version": "CUDA_12_6_560",
    "billing_type": "ON_DEMAND",
}


def test_one_output_is_printed_unescaped_except_on_a_terminal(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, escapes keep every character of the output visible."""
    import_state(dev, project, {"said": HOSTILE}, id="id", inputs=DECLARED, outputs=DECLARED)
    assert dev("stack", "output", "said").out == f"{HOSTILE}\n"
    monkeypatch.setattr("gpuform.stacks.cli.terminal.screen.is_tty", lambda _stream: True)
    assert set(find_control_characters(dev("stack", "output", "said").out)) == {"\n"}


def test_texts_of_a_state_stay_texts_in_converted_files(dev: Run, project: Path) -> None:
    import_state(dev, project, {f"o{QUOTES}": QUOTES}, id="id", inputs=DECLARED, outputs=DECLARED)
    for form in ("python", "yaml"):
        ran = dev("convert", "--from", "state", "--to", form, "--out", f"made.{form}")
        assert ran.code == 0, ran.err
    program = (project / "made.python").read_text()
    assert [type(statement).__name__ for statement in ast.parse(program).body] == [
        *("Import", "ImportFrom", "Assign", "Expr")
    ]
    texts = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
    assert {*DECLARED.values(), f"o{QUOTES}"} <= {*texts}
    topology = (project / "made.yaml").read_text()
    assert list(yaml.safe_load(topology)["outputs"]) == [f"o{QUOTES}"]
    assert set(find_control_characters(program + topology)) == {"\n"}
    output = dev("graph", "--stack", "dev", "--format", "mermaid").out
    assert set(find_control_characters(output)) == {"\n"}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"inputs": {**DECLARED, "x=1)\nimport os\n#": "1"}}, 1),
        ({"inputs": DECLARED, "customTimeouts": {"x=1)\nimport os\n#": 60}}, 0),
    ],
)
def test_names_of_a_state_become_no_statements_of_a_program(
    dev: Run, project: Path, entry: dict[str, Any], code: int
) -> None:
    import_state(dev, project, {}, id="id", outputs=DECLARED, **entry)
    ran = dev("convert", "--from", "state", "--to", "python", "--out", "made.py")
    made = project / "made.py"
    assert "Traceback" not in ran.err
    assert (ran.code, made.exists()) == (code, code == 0), ran.err
    written = made.read_text() if made.exists() else ""
    assert "import os" not in written.replace("\\nimport os", "")


def test_a_hostile_cluster_id_adds_no_manifest() -> None:
    evil = ClusterClaims("id\n---\nkind: Evil\n", frozenset(), [{"kind": "PersistentVolumeClaim"}])
    documents = list(yaml.safe_load_all(render_manifests([evil, evil])))
    assert [document["kind"] for document in documents] == ["PersistentVolumeClaim"] * 2
