"""Commands and flags that promise to change nothing, with every other flag beside them.

The combinations come from the command tree: a new command or flag is in them at once. Each runs in
this process against a platform that refuses every write.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import click
import pytest
from flask import Flask
from support.stacks.planned_project import KEY_CHECK_ID

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.server import environment, serve
from gpuform.stacks.cli.app import cli

EXAMPLE: Final = Path(__file__).parents[3] / "examples/01-together-training"

READ_ONLY_COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "preview": (),
    "drift": (),
    "status": (),
    "doctor": (),
    "orphans": (),
    "offers": (),
    "graph": (),
    "manifests": (),
    "validate": (),
    "console": (),
    "logs": (),
    "review": ("plan.json",),
    "rehearse": (),
    "explain": ("train",),
    "calendar": (),
    "about": (),
    "whoami": (),
    "schema": (),
    "help": (),
    "completion": ("bash",),
    "config": (),
    "config get": ("gpus",),
    "config ls": (),
    "stack": (),
    "stack export": (),
    "stack history": (),
    "stack ls": (),
    "stack output": (),
    "state": (),
    "state list": (),
    "state show": ("train",),
    "plugin doctor": (),
    "emulator env": (),
    "emulator status": (),
    "": (),
}
"""Commands that only look, by their words, with the arguments that they need."""

PREVIEW_FLAGS: Final = {"--preview-only", "--dry-run"}
"""Two names of one flag."""

READ_ONLY_FLAGS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "--preview-only": {
        "import": ("together:SharedVolume", "other", "{volume}"),
        "up": (),
        "refresh": (),
        "destroy": (),
    },
    "--dry-run": {"expire": (), "repair": ()},
    "--save-plan": {"refresh": (), "destroy": ()},
    "--print": {
        "kubeconfig": (),
        "ssh-config": (),
        "connect": ("train",),
    },
    "--check": {"fmt": ("topology.yaml",)},
    "--diff": {"fmt": ("topology.yaml",)},
    "--list": {"test": ()},
}
"""Flags with which a command changes nothing."""

CONFIRMED_COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "up": (),
    "import": ("together:SharedVolume", "other", "{volume}"),
    "refresh": (),
    "destroy": (),
    "expire": (),
    "repair": ("worker-0",),
    "export-topology": ("--format", "kubernetes-labels", "--apply"),
    "cancel": (),
    "stack rm": ("dev",),
    "state delete": ("train",),
    "state move": ("--dest", "organization/together-training/other", "train"),
    "state protect": ("train",),
    "state rename": ("train", "other"),
    "state repair": (),
    "state taint": ("train",),
    "state unprotect": ("train",),
    "state untaint": ("train",),
}
"""Commands that ask first: without --yes they change nothing where nobody can answer."""

CHANGING_COMMANDS: Final = frozenset(
    {
        *(
            "new",
            "fetch-plan",
            "plan-part",
            "join",
            "convert",
            "login",
            "logout",
            "mcp",
            "lsp",
            "notify",
        ),
        *("config set", "config rm", "stack init", "stack select", "stack unselect"),
        *("stack rename", "stack migrate", "stack import", "stack change-secrets-provider"),
        *("state recover", "state upgrade"),
        *("emulator", "emulator share", "emulator start", "emulator stop"),
        *("plugin install", "plugin uninstall"),
    }
)
"""Commands that promise nothing of the kind."""

VALUES: Final[Mapping[str, str]] = {
    "--adopt": "6f3a1c52-0000-4000-8000-000000000000",
    "--allow": "destroy-reserved",
    "--color": "never",
    "--config": "gpus=16",
    "--context": "train",
    "--cwd": ".",
    "--dest": "organization/together-training/other",
    "--digest": "0123456789ab",
    "--expression": "1 + 1",
    "--exclude": "data",
    "--filter": "*",
    "--forge-url": "http://127.0.0.1:9",
    "--from-backup": "1",
    "--gates": "rules.yaml",
    "--gates-from": "HEAD",
    "--gpu": "H100_SXM",
    "--hazards": "none",
    "--id": "6f3a1c52-0000-4000-8000-000000000000",
    "--job": "gpuform-plan",
    "--jump": "jump.example.com",
    "--lock-timeout": "1s",
    "--message": "why",
    "--mode": "REBOOT_VM",
    "--name": "*",
    "--namespace": "default",
    "--node": "worker-0",
    "--older-than": "1h",
    "--parent": "urn:pulumi:dev::together-training::pulumi:pulumi:Stack::together-training-dev",
    "--plan": "plan.json",
    "--platform": "together",
    "--pull-request": "1",
    "--region": "us-central-8",
    "--replace": "train",
    "--repository": "o/r",
    "--set": "size_tib=5",
    "--source": "dev",
    "--stack": "dev",
    "--tag": "team=ml",
    "--target": "train",
    "--target-replace": "train",
    "--timeout": "60s",
    "--type": "together:Cluster",
    "--user": "ubuntu",
    "--via": "kubectl",
}
"""What an option with a value is given."""

IMMEDIATE_FLAGS: Final = ("--yes", "--skip-preview", "--json")
"""Flags that make a command act at once or differently: the quick test pairs them with all."""

NOT_IN_PROCESS: Final = frozenset({"--all", "--post", "--label", "--status"})
"""Flags that start a process for each stack, or talk to a code host."""

REFUSED_FLAGS: Final[Mapping[str, frozenset[str]]] = {
    "import": frozenset({"--platform", "--type", "--name", "--tag"}),
    "up --preview-only": frozenset({"--skip-preview"}),
    "refresh --preview-only": frozenset({"--skip-preview"}),
    "destroy --preview-only": frozenset({"--skip-preview"}),
    "refresh --save-plan": frozenset({"--skip-preview"}),
    "destroy --save-plan": frozenset({"--skip-preview", "--remove"}),
    "repair --dry-run": frozenset({"--mode", "--plan"}),
    "kubeconfig --print": frozenset({"--remove", "--json"}),
    "ssh-config --print": frozenset({"--install", "--remove", "--json"}),
    "up unasked": frozenset({"--json"}),
    "refresh unasked": frozenset({"--json"}),
    "destroy unasked": frozenset({"--json"}),
    "expire unasked": frozenset({"--json"}),
    "export-topology unasked": frozenset({"--json", "--output", "--remove"}),
    "repair unasked": frozenset({"--json", "--plan", "--save-plan"}),
}
"""Flags that are a usage error beside the promise. Those of everything are below."""

DEPENDENT_FLAGS: Final = frozenset({"--filter", "--digest"})
"""Flags that are a usage error without some other that the quick test does not pair with them."""

Flag = tuple[str, ...]
"""A flag as it is typed, with its value."""


@dataclass(frozen=True)
class ReadOnlyCommand:
    """A command that changes nothing: always, with a flag, or because nobody can confirm."""

    words: str
    arguments: Sequence[str]
    flag: str = ""
    asks: bool = False

    @property
    def command(self) -> click.Command:
        return COMMANDS_BY_WORDS[self.words]

    def __str__(self) -> str:
        return " ".join(filter(None, (self.words, self.flag or ("unasked" if self.asks else ""))))

    def list_other_flags(self) -> dict[str, Flag]:
        """Return every other flag of the command by its name."""
        skipped = {self.flag, *(("--yes", "--skip-preview") if self.asks else ())}
        if self.flag in PREVIEW_FLAGS:
            skipped |= PREVIEW_FLAGS
        options = (
            parameter for parameter in self.command.params if isinstance(parameter, click.Option)
        )
        flags_by_name = {line[0]: line for line in map(format_flag, options)}
        return {name: line for name, line in flags_by_name.items() if name not in skipped}

    def build_line(self, flags: Iterable[Flag]) -> list[str]:
        own: list[str] = []
        if self.flag:
            parameter = next(p for p in self.command.params if self.flag in p.opts)
            assert isinstance(parameter, click.Option)
            own = [self.flag, *format_flag(parameter)[1:]]
        flag_words = [word for flag in flags for word in flag]
        return [*self.words.split(), *self.arguments, *own, *flag_words]


def format_flag(option: click.Option) -> Flag:
    """Return the typed form of an option, with a value if necessary."""
    flag = max(option.opts, key=len)
    if option.is_flag or option.count:
        return (flag,)
    if flag in VALUES:
        return flag, VALUES[flag]
    if isinstance(option.type, click.Choice):
        return flag, str(option.type.choices[0])
    if isinstance(option.type, click.Path):
        return flag, f"out/{option.name}"
    assert isinstance(option.type, click.IntRange | type(click.INT)), f"{flag} is not in VALUES"
    return flag, "2"


def _walk_commands(
    run_command: click.Command, words: tuple[str, ...], context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    if isinstance(run_command, click.Group):
        for name in run_command.list_commands(context):
            inner = run_command.get_command(context, name)
            assert inner is not None
            yield from _walk_commands(inner, (*words, name), context)
        if not run_command.invoke_without_command:
            return
    yield " ".join(words), run_command


COMMANDS_BY_WORDS: Final = dict(_walk_commands(cli, (), click.Context(cli)))

ALL_READ_ONLY_COMMANDS: Final = (
    *(ReadOnlyCommand(words, arguments) for words, arguments in READ_ONLY_COMMANDS.items()),
    *(
        ReadOnlyCommand(words, arguments, flag)
        for flag, commands in READ_ONLY_FLAGS.items()
        for words, arguments in commands.items()
    ),
    *(
        ReadOnlyCommand(words, arguments, asks=True)
        for words, arguments in CONFIRMED_COMMANDS.items()
    ),
)
# `up --preview-only` is `preview`: its pairs of flags are tested there.
COMMANDS_WITH_FLAGS: Final = [
    promise
    for promise in ALL_READ_ONLY_COMMANDS
    if len(promise.list_other_flags()) > 1 and str(promise) != "up --preview-only"
]


@dataclass
class WriteGuard:
    """Refuses every change of the platforms once writes are forbidden, and records the requests."""

    refused: list[str] = field(default_factory=list)
    are_forbidden: bool = False

    def create_guarded_app(self, *arguments: Any) -> Flask:
        """Return the emulator's app, which refuses writes while `are_forbidden` is set."""
        flask = create_app(*arguments)
        app = flask.wsgi_app

        def wsgi_app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            # A registry's questions are posts; waits move the emulator's clock; a key's role is
            # asked for by an object that nobody has.
            is_question = path.endswith("/query") or path.startswith("/_emulator/")
            if not self.are_forbidden or method == "GET" or is_question or KEY_CHECK_ID in path:
                return app(environ, start)
            self.refused.append(f"{method} {path}")
            start("403 Forbidden", [("Content-Type", "application/json")])
            return [b'{"error": "nothing may be changed"}']

        setattr(flask, "wsgi_app", wsgi_app)  # noqa: B010 - how Flask says to wrap an app
        return flask


@dataclass(frozen=True)
class AppliedProject:
    """A project whose stack is up, and a volume created outside of the stack."""

    project: Path
    volume: str
    writes: WriteGuard

    def read_files(self) -> dict[str, bytes]:
        """Return all files of the project, its state and its user, except requested ones."""
        matching_paths = (path for path in self.project.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.project)): path.read_bytes()
            for path in matching_paths
            if not {"out", "__pycache__", "locks", ".gpuform"} & set(path.parts)
        }

    def run_unchanged(self, promise: ReadOnlyCommand, names: Sequence[str]) -> int:
        """Run the command with these flags, assert no change, and return the exit code."""
        flags = promise.list_other_flags()
        line = [
            word.replace("{volume}", self.volume)
            for word in promise.build_line(flags[name] for name in names)
        ]
        shutil.rmtree(self.project / "out", ignore_errors=True)
        (self.project / "out").mkdir()
        before, shown_command = self.read_files(), " ".join(["gpuform", *line])
        self.writes.refused.clear()
        code, output = run_command(line)
        assert self.writes.refused == [], f"{shown_command}: {output}"
        assert self.read_files() == before, f"{shown_command}: {output}"
        assert "Traceback" not in output, f"{shown_command}: {output}"
        return code


def run_command(line: Sequence[str]) -> tuple[int, str]:
    """Run a command in this process, and return its exit code and output. Nobody answers."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            cli.main(args=list(line), prog_name="gpuform")
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return code, raw.getvalue().decode()


@pytest.fixture(scope="module")
def applied_example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppliedProject]:
    project, writes = tmp_path_factory.mktemp("account"), WriteGuard()
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as held:
        patch.setattr("gpuform.providers.emulator.server.create_app", writes.create_guarded_app)
        # `emulator env` would wait for an emulator on the usual port with each of its flags.
        processes = "gpuform.stacks.operations.opening.emulator"
        patch.setattr(f"{processes}.ANSWER_TIMEOUT_S", 0.1)
        server = held.enter_context(serve(seed="flags"))
        for name in ("Pulumi.yaml", "__main__.py", "topology.yaml"):
            shutil.copy(EXAMPLE / name, project)
        (project / "rules.yaml").write_text(
            "gates:\n  place:\n    allowed_regions: [us-central-8]\n"
        )
        topology = project / "topology.yaml"
        ends = "    billing_type: ON_DEMAND\n    ttl: 1h\n"
        topology.write_text(topology.read_text().replace("    billing_type: ON_DEMAND\n", ends))
        for name in [n for n in os.environ if n.startswith(("PULUMI_", "TOGETHER_", "GPUFORM_"))]:
            patch.delenv(name)
        for name, value in {
            **environment(server.url),
            "PULUMI_DISABLE_CI_DETECTION": "true",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_HOME": str(project / "home"),
            "HOME": str(project / "home"),
            "KUBECONFIG": str(project / "home/kubeconfig"),
        }.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.StringIO())
        patch.chdir(project)
        for line in (
            ("stack", "init", "dev"),
            ("up", "--yes", "--skip-preview"),
            ("config", "set", "gpus", "16"),
            ("preview", "--save-plan", "plan.json"),
        ):
            code, output = run_command(line)
            assert code == 0, output
        volume = _create_foreign_volume(server.url)
        server.clock.advance(2 * 3600)
        writes.are_forbidden = True
        yield AppliedProject(project, volume, writes)


def _create_foreign_volume(url: str) -> str:
    """Create a volume outside of the stack, and return the id."""
    body = {"volume_name": "other", "region": "us-central-8", "size_tib": 5}
    request = urllib.request.Request(
        f"{url}/together/v1/compute/clusters/storage/volumes",
        json.dumps(body).encode(),
        {"Authorization": "Bearer emulator-admin-key", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["volume_id"])


def test_every_command_says_whether_it_changes_anything() -> None:
    named = {promise.words for promise in ALL_READ_ONLY_COMMANDS} | CHANGING_COMMANDS
    assert named == set(COMMANDS_BY_WORDS)


WITHOUT_JSON: Final[Mapping[str, str]] = {
    "help": "prints a page",
    "completion": "prints a script",
    "console": "prints JSON anyway",
    "schema": "prints JSON anyway",
    "stack export": "prints JSON anyway",
    "manifests": "prints YAML for kubectl",
    "emulator env": "prints lines for a shell",
    "stack": "prints its help",
    "state": "prints its help",
    "": "prints its help",
}
"""Commands that only look and have no --json, with the reasons."""


@pytest.mark.parametrize("words", READ_ONLY_COMMANDS)
def test_every_command_that_only_shows_something_has_json(words: str) -> None:
    options = [option for parameter in COMMANDS_BY_WORDS[words].params for option in parameter.opts]
    assert ("--json" in options) is (words not in WITHOUT_JSON)


def test_every_flag_documented_as_read_only_is_listed() -> None:
    listed = {(flag, words) for flag, commands in READ_ONLY_FLAGS.items() for words in commands}
    missing = [
        (parameter.opts, words)
        for words, command in COMMANDS_BY_WORDS.items()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        and any(phrase in (parameter.help or "") for phrase in READ_ONLY_PHRASES)
        and not any((name, words) in listed for name in parameter.opts)
    ]
    assert missing == []


READ_ONLY_PHRASES: Final = (
    "Only show",
    "nothing is changed",
    ("change nothing"),
    "change nothing",
    "without writ",
)
"""How the help of a flag promises it."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("promise", ALL_READ_ONLY_COMMANDS, ids=str)
def test_no_flag_makes_a_read_only_command_change_something(
    applied_example: AppliedProject, promise: ReadOnlyCommand
) -> None:
    names = [name for name in promise.list_other_flags() if name not in NOT_IN_PROCESS]
    acting = [name for name in names if name in IMMEDIATE_FLAGS]
    assert applied_example.run_unchanged(promise, ()) != click.UsageError.exit_code
    accepted = set()
    for name in names:
        others = [(name,), *((name, other) for other in acting if other != name)]
        codes = {applied_example.run_unchanged(promise, other) for other in others}
        accepted |= {name} if codes - {click.UsageError.exit_code} else set()
    refused = REFUSED_FLAGS.get(str(promise), REFUSED_FLAGS.get(promise.words, frozenset()))
    assert set(names) - accepted <= refused | DEPENDENT_FLAGS


@pytest.mark.slow
@pytest.mark.parametrize("promise", COMMANDS_WITH_FLAGS, ids=str)
def test_no_two_flags_make_a_read_only_command_change_something(
    applied_example: AppliedProject, promise: ReadOnlyCommand
) -> None:
    names = [name for name in promise.list_other_flags() if name not in NOT_IN_PROCESS]
    for pair in combinations(names, 2):
        applied_example.run_unchanged(promise, pair)
