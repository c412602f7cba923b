"""Save what users and states see of gpuform, and compare two such folders.

`python -m tools.compare_baseline save FOLDER` writes the help of each command, the frozen dotted
paths and type tokens, the ids of all tests, and each example's plan JSON and final state.
`python -m tools.compare_baseline compare OLD NEW` prints the lines that differ and fails if any do.
Run `save` before and after a change of the code's structure, which must change none of them.

Examples run on an emulator with a fixed seed and start time. Platforms create objects at the same
time, in any order: ids, times and ports vary between runs, and are replaced before they are saved.
"""

import argparse
import contextlib
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from click.testing import CliRunner

from gpuform.providers.catalog import list_kinds, load_lifecycle_class, load_resource_class
from gpuform.providers.emulator.server import serve
from gpuform.stacks.cli.app import cli

ROOT: Final = Path(__file__).parents[1]
START: Final = 1_800_000_000.0
"""The emulator's time at the start of each example, in unix seconds."""

VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "EMULATOR"),
    (re.compile(r"(?<=\"ciphertext\": \")[^\"]+|(?<=\"salt\": \")[^\"]+"), "CIPHERTEXT"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{64})\b(?!\": )"), "HEX"),
    (re.compile(r"(?<=\"duration\": )\d+"), "0"),
)
"""What differs between two runs of the same code, with what is written instead."""

LINES_SHOWN: Final = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Save a baseline, or compare two; return 1 if they differ."""
    parser = argparse.ArgumentParser(prog="tools.compare_baseline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save")
    save.add_argument("folder", type=Path)
    save.add_argument("--only", choices=PARTS, action="append", help="default: all parts")
    compare = commands.add_parser("compare")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "save":
        save_baseline(options.folder, options.only or list(PARTS))
        return 0
    differences = list(find_differences(options.old, options.new))
    sys.stdout.writelines(f"{line}\n" for line in differences or ["no differences"])
    return int(bool(differences))


def save_baseline(folder: Path, parts: Sequence[str]) -> None:
    """Write the files of each part of `PARTS` below `folder`."""
    for part in parts:
        for name, text in PARTS[part]():
            path = folder / part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def find_differences(old: Path, new: Path) -> Iterator[str]:
    """Yield a line for each file that only one folder has, and the lines of files that differ."""
    names = {file.relative_to(top) for top in (old, new) for file in top.rglob("*.*")}
    for name in sorted(names):
        files = [old / name, new / name]
        missing = [str(file) for file in files if not file.exists()]
        if missing:
            yield f"{missing[0]} is missing"
            continue
        before, after = (file.read_text(encoding="utf-8").splitlines() for file in files)
        changes = list(
            difflib.unified_diff(before, after, str(old / name), str(new / name), n=1, lineterm="")
        )
        yield from changes[:LINES_SHOWN]
        if len(changes) > LINES_SHOWN:
            yield f"{len(changes) - LINES_SHOWN} further lines of {name}"


def render_helps() -> Iterator[tuple[str, str]]:
    """Yield the name of a file for each command, and the command's help."""

    def walk(command: click.Command, *words: str) -> Iterator[tuple[str, str]]:
        done = CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": "100"})
        yield f"{'_'.join(('gpuform', *words))}.txt", f"{done.stdout}exit {done.exit_code}\n"
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                if inner := command.get_command(context, name):
                    yield from walk(inner, *words, name)

    yield from walk(cli)


def render_frozen_names() -> Iterator[tuple[str, str]]:
    """Yield one file: the type token, lifecycle class and resource class of each kind."""
    lines = []
    for platform, kind in sorted(list_kinds()):
        classes = load_lifecycle_class(platform, kind), load_resource_class(platform, kind)
        paths = " ".join(f"{item.__module__}:{item.__qualname__}" for item in classes)
        lines.append(f"{classes[1]._resource_type_name} {paths}\n")  # noqa: SLF001 - Pulumi's name
    yield "kinds.txt", "".join(lines)


def render_test_ids() -> Iterator[tuple[str, str]]:
    """Yield one file: the ids of all tests. Raises RuntimeError if a file cannot be imported."""
    pytest = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    done = subprocess.run(  # noqa: S603 - this Python and constants
        [*pytest, "-o", "addopts=--import-mode=importlib", "tests"],  # also the slow tests
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"pytest does not collect all tests:\n{done.stdout[-2000:]}")
    ids = sorted(line for line in done.stdout.splitlines() if "::" in line)
    yield "tests.txt", "".join(f"{name}\n" for name in ids)


def render_examples() -> Iterator[tuple[str, str]]:
    """Yield each example's plan and final state, as JSON with what varies replaced."""
    for project in sorted((ROOT / "examples").glob("[0-9]*/Pulumi.yaml")):
        for name, document in _run_example(project.parent):
            yield f"{project.parent.name}.{name}.json", document


def _run_example(example: Path) -> Iterator[tuple[str, str]]:
    """Run an example's topology in a copy, and yield `plan` and `state` with their JSON.

    Raises RuntimeError, with the output, if a command fails.
    """
    ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml", "python", "pulumi-yaml", "tests")
    with contextlib.ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        copy = shutil.copytree(example, folder / "project", ignore=ignored)
        resources.enter_context(contextlib.chdir(copy))
        server = resources.enter_context(contextlib.closing(serve(seed="baseline", start=START)))
        variables = {
            **{name: None for name in os.environ if name.startswith(("PULUMI_", "GPUFORM_"))},
            **server.environment,
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": "",
        }

        def run(*command: str) -> str:
            done = CliRunner().invoke(cli, command, env=variables)
            if done.exit_code:
                raise RuntimeError(f"{example.name}: gpuform {' '.join(command)}: {done.output}")
            return done.stdout

        run("stack", "init", "dev")
        yield "plan", _normalize(run("preview", "--json"), folder)
        run("up", "--yes")
        yield "state", _normalize(run("stack", "export", "--show-secrets"), folder)


def _normalize(document: str, folder: Path) -> str:
    """Return JSON with sorted keys and resources, with replacements for what varies."""
    content = json.loads(document)
    entries = content.get("deployment", {}).get("resources", [])
    entries.sort(key=lambda entry: str(entry["urn"]))
    text = json.dumps(content, indent=1, sort_keys=True)
    text = text.replace(str(folder), "FOLDER")
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, text)
    return f"{text}\n"


PARTS: Final = {
    "help": render_helps,
    "frozen": render_frozen_names,
    "tests": render_test_ids,
    "examples": render_examples,
}
"""The folders of a baseline, with what yields their files."""


if __name__ == "__main__":
    sys.exit(main())
