"""The first command lines of people who know Terraform, Pulumi, kubectl, gh, dstack or SkyPilot.

They were written down before anybody looked at the commands of gpuform. Each of them is a correct
command line, or gets one message with the command that does the work.
"""

import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.first_guesses import GUESSES
from gpuform.stacks.help_pages import find_page, read_page

# After the arrow: the command of the answer. Without an arrow gpuform has the command.
TERRAFORM = """
init -> gpuform stack init NAME
init -upgrade -> gpuform stack init NAME
validate
fmt
fmt -check
plan -> gpuform preview
plan -out=plan.tfplan -> gpuform preview --save-plan plan.tfplan
plan -destroy -> gpuform destroy --preview-only
plan -detailed-exitcode -> gpuform preview --detailed-exitcode
plan -target=cluster.train -> gpuform preview --target train
plan -var-file=prod.tfvars -> gpuform preview --config KEY=VALUE
plan -h -> gpuform preview
apply -> gpuform up
apply -auto-approve -> gpuform up --yes
apply --auto-approve -> gpuform up --yes
apply plan.tfplan -> gpuform up --plan plan.tfplan
apply -replace=cluster.train -> gpuform up --replace train
apply -refresh-only -> gpuform refresh
destroy -auto-approve
destroy --auto-approve
output -> gpuform stack output
output -json -> gpuform stack output --json
output -raw kubeconfig -> gpuform stack output kubeconfig
show -> gpuform status
show -json plan.tfplan -> gpuform review plan.tfplan --json
state list
state show cluster.train
state mv cluster.a cluster.b -> gpuform state rename a b
state rm cluster.train
state pull -> gpuform stack export
state push -> gpuform stack import --file FILE
import cluster.train i-123 -> gpuform import together:Cluster train ID
taint cluster.train -> gpuform state taint train
untaint cluster.train -> gpuform state untaint train
workspace list -> gpuform stack ls
workspace new dev -> gpuform stack init dev
workspace select dev -> gpuform stack select dev
workspace show -> gpuform stack
workspace delete dev -> gpuform stack rm dev
force-unlock 5f0c -> gpuform cancel
console
graph
providers -> gpuform about
refresh
get -> gpuform validate
login
logout
version -> gpuform --version
-version
-help
-h
test
-chdir=infra plan -> gpuform preview --cwd infra
"""
PULUMI = """
new
new python
stack init dev
stack ls
stack select dev
stack rm dev
stack output
stack output kubeconfig
stack export
stack import --file state.json
stack history
up
up -y
up --skip-preview
up -s dev
up --stack dev
up --target cluster.train
preview --diff
preview --json
refresh --yes
destroy -y
cancel
config
config set region eu
config set --secret token x
config get region
config rm region
state delete urn
state unprotect --all
state rename a b
logs -f -> gpuform logs
whoami
about
watch -> gpuform up
history -> gpuform stack history
import gpuform:index:Cluster train i-123
plugin ls -> gpuform plugin doctor
policy ls -> gpuform help guides/gates-and-cost
convert --from terraform
env ls -> gpuform config
schema check -> gpuform validate
install -> gpuform doctor
"""
KUBECTL = """
get nodes -> gpuform status
get nodes -o json -> gpuform status --json
get nodes -o wide -> gpuform status
get events -> gpuform logs
get pods -> gpuform connect CLUSTER -- kubectl get pods
describe node gpu-0 -> gpuform state show gpu-0
apply -f cluster.yaml -> gpuform up
apply -f cluster.yaml --dry-run=client -> gpuform preview
delete -f cluster.yaml -> gpuform destroy
delete node gpu-0 -> gpuform help guides/grow-and-shrink
create -f cluster.yaml -> gpuform up
diff -f cluster.yaml -> gpuform preview --diff
cordon gpu-0 -> gpuform help concepts/taking-nodes
uncordon gpu-0 -> gpuform help concepts/taking-nodes
drain gpu-0 --ignore-daemonsets -> gpuform help concepts/taking-nodes
logs gpu-0 -> gpuform connect CLUSTER --node gpu-0
exec -it gpu-0 -- bash -> gpuform connect CLUSTER --node gpu-0
top nodes -> gpuform status
explain cluster
scale cluster train --replicas=4 -> gpuform up
rollout status cluster/train -> gpuform status
rollout undo cluster/train -> gpuform up
api-resources -> gpuform help reference/topology
config get-contexts -> gpuform stack ls
config use-context dev -> gpuform stack select dev
config current-context -> gpuform stack
config view -> gpuform config
edit cluster train -> gpuform up
wait --for=condition=ready cluster/train -> gpuform up
port-forward gpu-0 8080 -> gpuform connect CLUSTER -- kubectl port-forward gpu-0 8080
cluster-info -> gpuform status
events -> gpuform logs
version --client -> gpuform --version
auth can-i create clusters -> gpuform doctor
cp gpu-0:/tmp/a a -> gpuform ssh-config --install
patch cluster train -> gpuform up
label node gpu-0 a=b -> gpuform up
"""
GH = """
auth login -> gpuform doctor
auth status -> gpuform doctor
auth logout -> gpuform logout
auth token -> gpuform doctor
secret set TOKEN -> gpuform config set --secret TOKEN
secret list -> gpuform config
variable set region -> gpuform config set region
run list -> gpuform stack history
run view 12 -> gpuform logs 12
run watch 12 -> gpuform status
status
extension list -> gpuform help guides/add-a-platform
extension install x -> gpuform help guides/add-a-platform
alias set a b -> gpuform completion bash
api /v1/nodes -> gpuform status --json
browse -> gpuform help
completion -s bash -> gpuform completion bash
config list
help
help environment
codespace ssh -> gpuform connect CLUSTER
--version
repo list -> gpuform stack ls
"""
EVERYDAY = """
ls -> gpuform status
list -> gpuform status
ps -> gpuform status
ssh gpu-0 -> gpuform connect gpu-0
launch cluster.yaml -> gpuform up
down
down train -> gpuform destroy --target train
start train -> gpuform help guides/drift-and-expiry
stop train -> gpuform help guides/drift-and-expiry
show-gpus -> gpuform offers
check -> gpuform validate
cost-report -> gpuform status
fleet list -> gpuform status
stack rm dev --force
offer -> gpuform offers
prices -> gpuform offers
gpus -> gpuform offers
regions -> gpuform offers
platforms -> gpuform offers
terraform plan -> gpuform preview
cluster list -> gpuform status
cluster create train -> gpuform up
cluster delete train -> gpuform destroy --target train
node list -> gpuform status
up -f topology.yaml -> gpuform up
apply topology.yaml -> gpuform up
destroy --force -> gpuform destroy --yes
fmt -recursive -> gpuform fmt
preview -out=p.json -> gpuform preview --save-plan p.json
up -parallelism=4 -> gpuform up --parallel 4
config unset region -> gpuform config rm region
-V -> gpuform --version
secrets -> gpuform config
pulumi up --yes -> gpuform up --yes
kubectl get nodes -> gpuform status
get secrets -> gpuform config
lint -> gpuform validate
rm train -> gpuform destroy --target train
delete train -> gpuform destroy --target train
create -> gpuform up
deploy -> gpuform up
unlock -> gpuform cancel
upgrade -> gpuform help start/upgrade
"""

LINES = [
    (guess, answer)
    for tool in (TERRAFORM, PULUMI, KUBECTL, GH, EVERYDAY)
    for guess, _, answer in (line.partition(" -> ") for line in tool.strip().splitlines())
]


def parse_line(line: str) -> None:
    """Parse a command line of gpuform without running the command.

    Raises:
        UsageError: gpuform has no such command, flag or argument.
    """
    group: click.Command = cli
    with contextlib.suppress(click.exceptions.Exit):  # of --help and --version
        context = cli.make_context("gpuform", shlex.split(line)[1:])
        words = [*context._protected_args, *context.args]
        while isinstance(group, click.Group) and words:
            name, command, words = group.resolve_command(context, words)
            assert command is not None
            context = command.make_context(name, words, parent=context)
            group, words = command, [*context._protected_args, *context.args]


@pytest.mark.parametrize(("guess", "answer"), LINES, ids=[guess for guess, _ in LINES])
def test_a_first_guess_works_or_is_answered_with_the_command(
    run: Any, project: Path, guess: str, answer: str
) -> None:
    if not answer:
        parse_line(f"gpuform {guess}")
        return
    ran = run(*shlex.split(guess))
    assert ran.code == 2
    assert ran.out == ""
    assert f"`{answer}`" in ran.err
    assert ran.err.count("error: ") == 1
    assert "Did you mean" not in ran.err


@pytest.mark.parametrize("guess", GUESSES, ids=[guess.pattern for guess in GUESSES])
def test_the_commands_of_an_answer_exist(guess: Any) -> None:
    command = f"gpuform {re.sub(r'[{}]', '', guess.command)}".strip()
    for line in (command, *re.findall(r"`(gpuform [^`]*)`", guess.effect)):
        parse_line(line)
        if line.startswith("gpuform help "):
            assert read_page(find_page(line.removeprefix("gpuform help "))).text


def test_no_command_of_gpuform_is_hidden_by_a_guess() -> None:
    hidden = []
    for guess in GUESSES:
        if "NAME" not in guess.pattern and "-" not in guess.pattern:
            try:
                parse_line(f"gpuform {guess.pattern}")
            except click.UsageError:
                continue
            hidden.append(guess.pattern)
    assert hidden == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("logs last --jsn", "No such option '--jsn'"),
        ("up --parallel many", "'many' is not a valid integer"),
        ("up --filter prod", "--filter requires --all"),
        ("plan-part a/x --format gitlab", "--plan and --format require --waves"),
        ("plan-part --waves --job apply", "--job requires --format gitlab"),
        ("stack init a b", "unexpected extra argument"),
    ],
)
def test_a_wrong_flag_of_a_known_command_is_no_first_guess(
    run: Any, line: str, message: str
) -> None:
    ran = run(*shlex.split(line))
    assert ran.code == 2
    assert message in ran.err
    assert "gpuform has no" not in ran.err


def test_the_value_of_a_variable_is_not_repeated(run: Any) -> None:
    ran = run("plan", "-var", "token=hunter2")
    assert "gpuform preview --config KEY=VALUE" in ran.err
    assert "hunter2" not in ran.err
    assert "hunter2" not in run("plan", "--config", "token=hunter2").err
    assert "hunter2" not in run("up", "-var", "token=hunter2").err


@pytest.mark.parametrize("flag", ["-auto-approve", "--auto-approve", "-yes", "-yes=true"])
def test_a_flag_of_terraform_is_the_flag_with_the_same_meaning(flag: str) -> None:
    context = cli.make_context("gpuform", ["destroy", flag])
    command = cli.get_command(context, "destroy")
    assert command is not None
    assert command.make_context("destroy", [flag], parent=context).params["yes"] is True


def test_a_value_that_follows_a_short_flag_is_no_long_flag() -> None:
    context = cli.make_context("gpuform", ["up"])
    command = cli.get_command(context, "up")
    assert command is not None
    params = command.make_context("up", ["-tdata", "-fy"], parent=context).params
    assert params["target"] == ("data",)
    assert params["yes"]
    assert params["skip_preview"]


def test_the_address_of_terraform_suggests_the_name(applied_project: Any) -> None:
    ran = applied_project.run("state", "show", "cluster.train")
    assert ran.code == 1
    assert "did you mean" in ran.err
    assert "::train" in ran.err
