"""Every example in the help of a command works."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from documentation.page import Enter, Run, Step
from documentation.reader import open_reader

from gpuform.stacks.cli.app import cli

NOT_RUN: Final = {
    "gpuform lsp": "waits for an editor: tests/stacks/editing",
    "gpuform mcp": "waits for a client: tests/stacks/agents",
    "gpuform mcp --cwd clusters": "as above",
    "gpuform connect train --node training-worker-0": "the emulator has no machines for SSH",
    "gpuform connect train --via slurm -- sinfo": "the emulator has no machines for SSH",
    "gpuform connect train --via slurm --user ada --jump ssh.example.com": "the emulator has no "
    "machines for SSH",
    "gpuform connect train -- get pods --all-namespaces": "kubectl is not everywhere",
    "gpuform manifests train | kubectl apply -f -": "kubectl is not everywhere",
    "gpuform graph | dot -Tsvg > stack.svg": "Graphviz is not everywhere",
    "gpuform fetch-plan && gpuform preview --plan plan.json": "needs a repository on GitHub",
    "gpuform fetch-plan --pull-request 12 plan.json": "needs a repository on GitHub",
    "gpuform plan-part --waves --runners 8": "needs several stacks; guides/many-runners.md runs it",
    "gpuform plan-part --waves --plan plan.json --format gitlab --job gpuform-apply": "needs "
    "several stacks: tests/workflows/test_gitlab_pipelines.py",
    "gpuform plan-part volumes/dev": "as above",
    "gpuform plan-part training/dev report/dev --parts parts": "as above",
    "gpuform plan-part --waves --plan plan.json --runners 8": "as above",
    "gpuform join --save-plan plan.json": "as above",
    "gpuform join --parts parts --detailed-exitcode": "as above",
    "gpuform review plan.json --post --label": "needs a pull request on GitHub",
    "gpuform new ci --all": "needs several projects: tests/workflows",
    "gpuform doctor --ci": "needs the files of new ci: tests/workflows",
    'gpuform stack migrate "s3://team-state/gpu?region=eu-central-1" --stack prod': (
        "needs a bucket: tests/stacks/cli/test_state_crashes.py"
    ),
    "gpuform stack migrate file:///srv/state --stack dev": (
        "writes outside of the home; guides/state-for-a-team.md runs it"
    ),
    "gpuform preview --save-plan plan.json --rehearse": "takes long; guides/rehearse.md runs it",
    "gpuform rehearse --plan plan.json --hazards no-capacity,killed": "takes long; "
    "guides/rehearse.md runs it",
    "gpuform rehearse --stack prod": "takes long; guides/rehearse.md runs it with few hazards",
    "gpuform rehearse --all --json": "takes long; tests/rehearsing runs it with one hazard",
    "gpuform notify": "needs notify.yaml; guides/notifications.md runs it",
    "gpuform notify --test --stack prod": "needs notify.yaml; guides/notifications.md runs it",
    "pulumi preview --json | gpuform review - --format html --output plan.html": (
        "the Pulumi CLI is not everywhere"
    ),
    "gpuform import together:Cluster train 6f3a1c52-...": "the id stands for one of an account",
    "gpuform import scp:NodePool train POOL001-krw1a/train-a/train --set server_type_id=...": (
        "the id stands for one of an account"
    ),
    "gpuform convert --from terraform ../infrastructure": "needs a state of Terraform",
    "gpuform import --all --platform tensorone --tag team=research": "needs objects with that tag",
    "gpuform repair training-worker-2 --mode REJECT": "needs a repair that Together proposes: "
    "tests/stacks/cli/test_repair.py",
    "gpuform state repair --from-backup": "asks which backup of a damaged stack is meant",
    "gpuform state repair --from-backup .pulumi/stacks/training/dev.json.bak": (
        "names a backup of a damaged stack"
    ),
    "gpuform login 's3://team-state/gpu?region=eu-central-1'": "needs a bucket",
    'gpuform stack change-secrets-provider "awskms://alias/team?region=eu-central-1"': (
        "needs a key of AWS"
    ),
    'gpuform stack init prod --secrets-provider "awskms://alias/team?region=eu-central-1"': (
        "needs a key of AWS"
    ),
    "gpuform state delete 'urn:pulumi:dev::training::lab:index:Machine::old'": (
        "the URN stands for one of a state"
    ),
    "PULUMI_HOME=/opt/pulumi gpuform plugin install": "writes outside of the home",
}
"""Examples that cannot be run here, and why."""

_TOPOLOGY: Final = "examples/01-together-training"
_SERVED: Final = (
    "gpuform emulator --port 0 > ../served 2>&1 & "
    "until grep -q Point ../served; do sleep 0.1; done; "
    'eval "$(gpuform emulator env --port $(sed -n '
    "'s/.*--port \\([0-9]*\\).*/\\1/p' ../served))\""
)
_MADE: Final = (_SERVED, "gpuform stack init dev", "gpuform up --yes --stack dev")


def answer_prompts(command: str, *answers: str) -> tuple[str, str]:
    """Return an interactive example, with a command for answers on a terminal."""
    typist = Path(__file__).parent / "typist.py"
    return command, shlex.join([sys.executable, str(typist), command, *answers])


def run_server(command: str) -> tuple[str, str]:
    """Return an example that runs until stopped, with a command to start and stop the server."""
    return command, (
        f"{command} > told & started=$!; until grep -q 'emulator is at' told; do sleep 0.1; "
        "kill -0 $started || return 1; done; kill $started; wait $started || true"
    )


def run_after(setup: str, command: str) -> tuple[str, str]:
    """Return an example with a command that prepares the project first."""
    return command, f"{setup}; {command}"


SCENES: Final[dict[str, list[str | tuple[str, str]]]] = {
    "plans": [
        _SERVED,
        "gpuform stack select --create dev",
        "gpuform validate",
        "gpuform validate --all",
        "gpuform stack init --all",
        "gpuform test",
        "gpuform test -k comes_up --coverage",
        "gpuform test --all --junit build/tests.xml",
        "gpuform schema --link",
        "gpuform schema --output topology.schema.json",
        "gpuform fmt",
        run_after(
            "printf 'shared_volumes: {}\\n' > volumes.yaml",
            "gpuform fmt --check --diff topology.yaml volumes.yaml",
        ),
        "gpuform preview --stack dev",
        "gpuform preview --save-plan plan.json",
        "gpuform review plan.json",
        run_after(
            "gpuform stack init prod; gpuform preview --save-plan prod.json; "
            "gpuform stack init staging; gpuform preview --save-plan staging.json",
            "gpuform review prod.json staging.json --format github --output comment.md",
        ),
        "gpuform stack select dev",
        "gpuform preview --save-plan plan.json && gpuform graph --plan plan.json --format mermaid",
        "gpuform preview --plan plan.json",
        answer_prompts("gpuform up --plan plan.json", "yes"),
        answer_prompts("gpuform up", "yes"),
        "gpuform preview --expect-no-changes",
        answer_prompts("gpuform refresh", "yes"),
        "gpuform refresh --yes --expect-no-changes",
        "gpuform refresh --save-plan drift.json",
        "gpuform drift --detailed-exitcode --format github --output drift.md",
        "gpuform expire --dry-run",
        "gpuform repair --dry-run",
        answer_prompts("gpuform repair training-worker-0 --mode REBOOT_VM", "yes"),
        "gpuform stack history",
        "gpuform stack history --json --page-size 100",
        "gpuform logs",
        "gpuform destroy --save-plan gone.json",
        answer_prompts("gpuform destroy --stack dev", "yes", "dev"),
        "gpuform stack rm dev --yes",
    ],
    "looking": [
        *_MADE,
        "gpuform status --stack dev",
        "gpuform status --all",
        "gpuform status --refresh --json",
        (
            "gpuform status --all --refresh --prometheus /var/lib/node_exporter/gpuform.prom",
            "gpuform status --all --refresh --prometheus gpuform.prom",
        ),
        ("gpuform calendar --stack prod", "gpuform calendar --stack dev"),
        "gpuform calendar --all --format ics --output fleet.ics",
        "gpuform explain train",
        "gpuform explain training-worker-0 --json",
        "gpuform doctor",
        "gpuform orphans",
        "gpuform orphans --platform tensorone --older-than 12h --json",
        "gpuform offers --gpu H100",
        "gpuform offers --platform scp --region kr-west1 --json",
        "gpuform console",
        "gpuform console -e 'clusters.train.num_gpus // 8'",
        "gpuform graph --format html --output stack.html",
        "gpuform graph --all --format mermaid",
        "gpuform manifests",
        "gpuform about",
        "gpuform whoami --verbose",
        "gpuform cancel dev",
        "gpuform kubeconfig",
        "gpuform kubeconfig train --use",
        "gpuform kubeconfig train --print > /dev/shm/train",
        "rm /dev/shm/train",
        "gpuform kubeconfig --remove",
        "gpuform ssh-config --install",
        "gpuform ssh-config --user ubuntu",
        "gpuform ssh-config --user ada --jump ssh.example.com",
        "gpuform ssh-config --print",
        "gpuform export-topology --format slurm-tree --output topology.conf",
        answer_prompts("gpuform export-topology train --format kubernetes-labels --apply", "yes"),
        "gpuform export-topology --format kueue --apply --yes",
        "gpuform export-topology --format inventory --refresh",
    ],
    "state": [
        *_MADE,
        "gpuform stack output",
        "gpuform stack output --json",
        "gpuform stack output kubeconfig --show-secrets > kubeconfig.yaml",
        "gpuform stack export --file dev.json",
        "gpuform stack import --file dev.json",
        "gpuform stack ls --json",
        "gpuform stack ls --all",
        "gpuform state list",
        "gpuform state list --stack dev",
        "gpuform state show train",
        "gpuform state show train --json --show-secrets",
        answer_prompts("gpuform state protect train data", "yes"),
        answer_prompts("gpuform state unprotect train", "yes"),
        answer_prompts("gpuform state taint train", "yes"),
        answer_prompts("gpuform state untaint --all", "yes"),
        answer_prompts("gpuform state rename train training", "yes"),
        "gpuform state rename training train --yes",
        "gpuform state upgrade",
        "gpuform state repair",
        "gpuform stack init prod && gpuform stack select dev",
        answer_prompts("gpuform state move --source dev --dest prod train data", "yes"),
        "gpuform stack unselect",
        "gpuform drift --stack prod",
        "gpuform expire --yes --stack prod",
        "gpuform doctor --stack prod --json",
        "gpuform validate --stack prod --format github",
        "echo 'shared_volumes.data.size_tib' | gpuform console --stack prod",
        "gpuform up --yes --stack prod",
        "gpuform logs 1 --stack prod",
        "gpuform state recover --stack prod",
        "gpuform stack select prod",
        "gpuform state delete train --yes",
        "gpuform stack rename staging --stack dev",
        "gpuform stack rename organization/training/prod --stack prod",
    ],
    "configuration": [
        "gpuform stack init dev",
        "gpuform config set gpus 24",
        "gpuform config get gpus",
        "gpuform config",
        "gpuform config ls --json",
        "gpuform config rm gpus",
        run_after("printf key > key.txt", "gpuform config set together:apiKey < key.txt"),
        ("gpuform config set together:apiKey", "printf key | gpuform config set together:apiKey"),
        run_after(
            "sed -i 's/^config:/config:\\n  limits: {type: object}/' topology.yaml",
            "gpuform config set --path 'limits.gpus[0]' 16",
        ),
        "gpuform config get --path 'limits.gpus[0]'",
        run_after(
            "export GPUFORM_NEW_PASSPHRASE=new",
            "gpuform stack change-secrets-provider passphrase",
        ),
        "gpuform login --local",
        "gpuform logout",
    ],
    "emulated": [
        "gpuform stack init trial --emulate",
        answer_prompts("gpuform up --emulate", "yes"),
        "gpuform up --yes --emulate",
        "gpuform destroy --yes --emulate",
        run_server("gpuform emulator --store emulator.db"),
        run_server("gpuform emulator --speed 60"),
        'eval "$(gpuform emulator start)"',
        (
            'eval "$(gpuform emulator env)"',
            'eval "$(gpuform emulator env --port ${GPUFORM_CLOCK##*:})"',
        ),
        "gpuform emulator status",
        'eval "$(gpuform emulator stop)"',
        "gpuform emulator share .",
    ],
    "other forms": [
        *_MADE,
        "gpuform convert --output program/__main__.py",
        run_after("mv topology.yaml ..", "gpuform convert --from state --set-secrets"),
    ],
    "tensorone": [
        "cp -r $GPUFORM_REPOSITORY/examples/03-tensorone-dev/. . && rm -rf .pulumi .gpuform",
        *_MADE,
        "gpuform connect workbench --port 8888",
    ],
    "tools": [
        "gpuform new",
        "gpuform new together-training --dir training",
        "cd training",
        "gpuform new ci --forge github --stack prod --backend s3://team-state",
        "gpuform new ci --upgrade",
        "gpuform plugin install",
        "gpuform plugin doctor",
        "gpuform plugin doctor --json",
        "gpuform plugin uninstall 0.1.0",
        "gpuform plugin install",
        "gpuform plugin uninstall",
        "gpuform help",
        "gpuform help adopt",
        "gpuform help stack init",
        "gpuform help concepts/intents#what-is-kept",
        'eval "$(gpuform completion bash)"',
        "mkdir -p ~/.config/fish/completions",
        "gpuform completion fish > ~/.config/fish/completions/gpuform.fish",
    ],
}
"""The examples in projects where they work; an example that asks or waits with how it is run."""


def _list_commands(group: click.Group) -> Iterator[click.Command]:
    yield group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _list_commands(command)
        else:
            yield command


def list_examples() -> set[str]:
    """Return the lines of all blocks of examples, without comments."""
    lines_found = set()
    for command in _list_commands(cli):
        block = re.search(r"(?m)^ *Examples?:\n((?: +\S.*\n?)+)", command.help or "")
        assert block is not None, command.name
        lines = [line.strip() for line in block[1].splitlines()]
        lines_found |= {line for line in lines if not line.startswith("#")}
    return lines_found


def _build_steps(scene: str) -> Iterator[Step]:
    for number, example in enumerate(SCENES[scene]):
        yield Run(number, example if isinstance(example, str) else example[1], 0, None)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_the_examples_work(scene: str, tmp_path: Path) -> None:
    with open_reader(tmp_path / "home") as reader:
        if scene != "tools":
            reader.follow([Enter(0, _TOPOLOGY)])
        reader.follow(list(_build_steps(scene)))


def test_every_example_is_run_or_says_why_not() -> None:
    played = {
        example if isinstance(example, str) else example[0]
        for s in SCENES.values()
        for example in s
    }
    assert list_examples() - played == NOT_RUN.keys()
    assert all(NOT_RUN.values())
