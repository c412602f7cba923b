"""Answer command lines of Terraform, Pulumi, kubectl and gh with gpuform's command for the work.

`app` calls `find_answer` when a command line is wrong; a correct one never imports this module.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click


class Guess(NamedTuple):
    """A command line of another tool, and gpuform's command for the same work.

    `pattern` begins with the words of the command; NAME stands for any word but a number, FILE for
    the name of a file with declarations, and a flag may be anywhere. `command` has placeholders for
    the further words of the command line: {RESOURCE} shows RESOURCE for a missing word, and {}
    nothing.
    """

    pattern: str
    command: str
    effect: str


_APPLY: Final = "creates, updates and deletes resources until they match the files of this folder"
_DECLARE: Final = "applies what the topology declares: change the topology first"
_DRAINS: Final = "explains how gpuform drains nodes before it removes or repairs them"
_LIST_STACKS: Final = "lists the stacks"
_SHOW_NODES: Final = "shows clusters and nodes with their state, GPUs and cost"
_SHOW_STACK: Final = "shows the selected stack"

GUESSES: Final = (
    # Terraform and OpenTofu
    Guess("init", "stack init {NAME}", "creates a stack; `gpuform new` creates a project"),
    Guess("plan", "preview", "shows the plan"),
    Guess("plan -destroy", "destroy --preview-only", "shows what a destroy would delete"),
    Guess("plan -refresh-only", "drift", "shows what changed outside of the stack"),
    Guess("apply", "up", _APPLY),
    Guess("apply NAME", "up --plan {FILE}", "applies a saved plan"),
    Guess("apply FILE", "up", _APPLY),
    Guess("up FILE", "up", _APPLY),
    Guess("preview FILE", "preview", "shows what `gpuform up` would change in this folder"),
    Guess("apply -refresh-only", "refresh", "updates the state from the platforms"),
    Guess("apply -destroy", "destroy", "deletes every resource of the stack"),
    Guess("apply -dry-run", "preview", "shows what `gpuform up` would change"),
    Guess("output", "stack output {}", "shows the stack's outputs"),
    Guess("show", "status", "shows the stack's resources"),
    Guess("show NAME", "review {FILE}", "shows a saved plan"),
    Guess("state mv", "state rename {RESOURCE} {NAME}", "renames a resource in the state"),
    Guess("state pull", "stack export", "prints the state"),
    Guess("state push", "stack import --file {FILE}", "replaces the state"),
    Guess("taint", "state taint {RESOURCE}", "makes the next `gpuform up` replace the resource"),
    Guess("untaint", "state untaint {RESOURCE}", "removes the taint"),
    Guess("workspace", "stack ls", f"{_LIST_STACKS}: a stack is what Terraform calls a workspace"),
    Guess("workspace list", "stack ls", _LIST_STACKS),
    Guess("workspace new", "stack init {NAME}", "creates a stack"),
    Guess("workspace select", "stack select {NAME}", "selects a stack"),
    Guess("workspace show", "stack", _SHOW_STACK),
    Guess("workspace delete", "stack rm {NAME}", "removes a stack"),
    Guess("force-unlock", "cancel", "removes the locks that an ended command left"),
    Guess("unlock", "cancel", "removes the locks that an ended command left"),
    Guess("providers", "about", "shows versions; the platforms are part of gpuform"),
    Guess("get", "validate", "loads the modules and checks the topology"),
    Guess("modules", "help guides/modules", "shows the guide to modules"),
    Guess("metadata", "schema", "prints the JSON Schema of topology files"),
    Guess("version", "--version", "shows the version"),
    Guess("-V", "--version", "shows the version"),
    # Pulumi
    Guess("history", "stack history", "lists the runs of the stack"),
    Guess("watch", "up", f"{_APPLY}; it runs once"),
    Guess("policy", "help guides/gates-and-cost", "shows the guide to gates"),
    Guess("env", "config", "shows the stack's configuration"),
    Guess("org", "whoami", "shows the user that runs are recorded for"),
    Guess("schema NAME", "validate", "checks topology files"),
    Guess("install", "doctor", "checks what is installed and reachable; gpuform is complete"),
    Guess("package", "plugin install", "installs the provider plugin for the Pulumi CLI"),
    Guess("plugin ls", "plugin doctor", "shows the installed plugin and its problems"),
    Guess("plugin list", "plugin doctor", "shows the installed plugin and its problems"),
    Guess("deployment", "help guides/review", "shows how CI plans and applies"),
    Guess("stack graph", "graph", "draws the stack"),
    Guess("stack show", "stack", _SHOW_STACK),
    Guess("stack list-outputs", "stack output", "shows the stack's outputs"),
    Guess("stack cancel", "cancel", "removes the locks that an ended command left"),
    Guess("config set-all", "config set {KEY} {VALUE}", "sets one key"),
    # kubectl
    Guess("get NAME", "status", _SHOW_NODES),
    Guess("get secrets", "config", "shows the stack's configuration, with secrets masked"),
    Guess("get events", "logs", "shows a run step by step"),
    Guess("get pods", "connect {CLUSTER} -- kubectl get pods", "runs kubectl on a cluster"),
    Guess("get namespaces", "connect {CLUSTER} -- kubectl get namespaces", "runs kubectl"),
    Guess("describe", "state show {RESOURCE}", "shows a resource with all of its properties"),
    Guess("apply -f", "up", _APPLY),
    Guess("apply -k", "up", _APPLY),
    Guess("apply -f -dry-run", "preview", "shows what `gpuform up` would change"),
    Guess("create", "up", _APPLY),
    Guess("replace", "up --replace {RESOURCE}", "replaces a resource"),
    Guess("delete", "destroy", "deletes every resource of the stack"),
    Guess("delete NAME", "destroy --target {RESOURCE}", "deletes one resource"),
    Guess("delete node", "help guides/grow-and-shrink", "shows how a cluster gives up nodes"),
    Guess("diff", "preview --diff", "shows the plan with every changed property"),
    Guess("cordon", "help concepts/taking-nodes", _DRAINS),
    Guess("uncordon", "help concepts/taking-nodes", _DRAINS),
    Guess("drain", "help concepts/taking-nodes", _DRAINS),
    Guess(
        "logs NAME",
        "connect CLUSTER --node {NODE}",
        "opens a shell on a node; `gpuform logs` shows the runs of the stack",
    ),
    Guess("logs -f", "logs", "shows the last run; `gpuform status` shows what exists now"),
    Guess("logs -follow", "logs", "shows the last run; `gpuform status` shows what exists now"),
    Guess("exec", "connect CLUSTER --node {NODE}", "opens a shell on a node"),
    Guess("attach", "connect CLUSTER --node {NODE}", "opens a shell on a node"),
    Guess("top", "status", _SHOW_NODES),
    Guess("scale", "up", f"{_DECLARE} (`gpuform help guides/grow-and-shrink`)"),
    Guess("autoscale", "help guides/grow-and-shrink", "shows how clusters grow and shrink"),
    Guess("rollout", "status", f"{_SHOW_NODES}; `gpuform up` waits until they are ready"),
    Guess(
        "rollout undo", "up", "applies the files of this folder: check out the earlier ones first"
    ),
    Guess("rollout restart", "up --replace {RESOURCE}", "replaces a resource"),
    Guess("api-resources", "help reference/topology", "lists every kind of resource"),
    Guess("api-versions", "about", "shows versions"),
    Guess("cluster-info", "status", _SHOW_NODES),
    Guess("config get-contexts", "stack ls", _LIST_STACKS),
    Guess("config use-context", "stack select {NAME}", "selects a stack"),
    Guess("config current-context", "stack", _SHOW_STACK),
    Guess("config unset", "config rm {NAME}", "removes a key of the configuration"),
    Guess("config view", "config", "shows the stack's configuration"),
    Guess("edit", "up", _DECLARE),
    Guess("patch", "up", _DECLARE),
    Guess("set", "up", f"{_DECLARE}; `gpuform config set KEY VALUE` sets configuration"),
    Guess("label", "up", _DECLARE),
    Guess("annotate", "up", _DECLARE),
    Guess("wait", "up", "waits until its resources are ready"),
    Guess("port-forward", "connect CLUSTER -- kubectl port-forward {POD} 8080", "runs kubectl"),
    Guess("proxy", "connect CLUSTER -- kubectl proxy", "runs kubectl on a cluster"),
    Guess("events", "logs", "shows a run step by step"),
    Guess("cp", "ssh-config --install", "makes nodes known to ssh and scp; then use scp"),
    Guess("options", "help reference/commands", "lists the commands and the flags of all"),
    # gh
    Guess("auth", "doctor", "checks the platforms' keys"),
    Guess(
        "auth login",
        "doctor",
        "checks the platforms' keys; `gpuform login` chooses the backend of the state",
    ),
    Guess("auth logout", "logout", "forgets the backend of the state"),
    Guess("auth can-i", "doctor", "checks the rights of the platforms' keys"),
    Guess("secret", "config", "shows the stack's configuration"),
    Guess("secret set", "config set --secret {NAME}", "asks for the value of a secret"),
    Guess("secret remove", "config rm {NAME}", "removes a key of the configuration"),
    Guess("secret delete", "config rm {NAME}", "removes a key of the configuration"),
    Guess("variable", "config", "shows the stack's configuration"),
    Guess("variable set", "config set {NAME}", "asks for the value of a key"),
    Guess("variable get", "config get {NAME}", "prints the value of a key"),
    Guess("variable delete", "config rm {NAME}", "removes a key of the configuration"),
    Guess("run", "up", _APPLY),
    Guess("run list", "stack history", "lists the runs of the stack"),
    Guess("run view", "logs {}", "shows a run step by step"),
    Guess("run watch", "status", _SHOW_NODES),
    Guess("workflow", "new ci", "writes workflows that plan and apply in CI"),
    Guess("pr", "review {FILE}", "shows a saved plan to the people who approve it"),
    Guess("issue", "help guides/troubleshooting", "shows what to do about problems"),
    Guess("extension", "help guides/add-a-platform", "shows how a platform is added"),
    Guess(
        "alias",
        "completion bash",
        "prints the script that completes commands; aliases are the shell's",
    ),
    Guess("api", "status --json", "prints what the platforms report, as JSON"),
    Guess("browse", "help {}", "lists the pages of the documentation"),
    Guess("codespace", "connect CLUSTER", "connects to a cluster"),
    Guess("repo", "stack ls", _LIST_STACKS),
    Guess("cache", "about", "shows where gpuform stores what"),
    Guess("completion -s", "completion bash", "prints the script for bash; zsh and fish work, too"),
    # dstack, SkyPilot, clouds, and words of every day
    *(
        Guess(word, "status", f"{_SHOW_NODES}; `gpuform stack ls` {_LIST_STACKS}")
        for word in (
            "ls",
            "list",
            "ps",
            "info",
            "nodes",
            "clusters",
            "queue",
            "cost",
            "cost-report",
        )
    ),
    *(Guess(word, "up", _APPLY) for word in ("launch", "deploy", "provision", "sync", "jobs")),
    *(
        Guess(word, "offers", "shows regions, GPU types and prices")
        for word in (
            "gpus",
            "offer",
            "prices",
            "regions",
            "show-gpus",
            "platforms",
            "catalog",
            "price",
        )
    ),
    *(
        Guess(word, "connect {CLUSTER}", "connects to a cluster")
        for word in ("ssh", "shell", "attach-to")
    ),
    *(
        Guess(word, "help guides/drift-and-expiry", "shows how machines stop and start by schedule")
        for word in ("start", "stop", "autostop", "pause", "resume", "restart")
    ),
    *(Guess(word, "validate", "checks topology files") for word in ("check", "lint", "compile")),
    Guess("format", "fmt", "formats topology files"),
    *(
        guess
        for word in ("cluster", "fleet", "node", "pods", "machine", "instance", "vm")
        for guess in (
            Guess(word, "status", _SHOW_NODES),
            Guess(f"{word} create", "up", _APPLY),
            Guess(f"{word} delete", "destroy --target {RESOURCE}", "deletes one resource"),
            Guess(f"{word} describe", "state show {RESOURCE}", "shows a resource"),
        )
    ),
    Guess("secrets", "config", "shows the stack's configuration, with secrets masked"),
    *(Guess(word, "status", "shows GPUs and cost") for word in ("spend", "usage", "budget")),
    Guess("quota", "offers", "shows regions, GPU types and prices"),
    *(
        Guess(word, "destroy", "deletes every resource of the stack")
        for word in ("rm", "remove", "terminate", "teardown")
    ),
    *(
        Guess(f"{word} NAME", "destroy --target {RESOURCE}", "deletes one resource")
        for word in ("rm", "remove", "terminate", "destroy", "down")
    ),
    *(
        Guess(f"{word} NAME", f"{word} --target {{RESOURCE}}", "works on one resource")
        for word in ("up", "preview", "refresh")
    ),
    Guess("upgrade", "help start/upgrade", "shows how to change to another version"),
    Guess("docs", "help {}", "lists the pages of the documentation"),
    Guess("setup", "doctor", "checks for what would make a run fail"),
    Guess("undo", "stack history", "lists the runs of the stack"),
    Guess("rollback", "stack history", "lists the runs: apply the files of an earlier one"),
)
"""Every guess; the one with the longest fitting pattern answers."""


_SAME_MEANING: Final = {
    "out": "--save-plan {}",
    "parallelism": "--parallel {}",
    "chdir": "--cwd {}",
    "no-color": "--color never",
    "input": "--non-interactive",
    # The value of a variable may be a secret: the answer does not repeat it.
    "var": "--config KEY=VALUE",
    "var-file": "--config KEY=VALUE",
    "config": "--config KEY=VALUE",
    "auto-approve": "--yes",
    "force": "--yes",
    **dict.fromkeys(("recursive", "wait", "upgrade", "compact-warnings", "lock"), ""),
}
"""Flags of other tools, without dashes, and the flags of gpuform with the same meaning, if any."""

_TOOLS: Final = frozenset({"gh", "gpuform", "kubectl", "pulumi", "sky", "terraform", "tofu"})

_FLAGS_WITH_VALUES: Final = frozenset(
    [
        "o",
        "output",
        "f",
        "filename",
        "k",
        "target",
        "replace",
        "out",
        "var",
        "var-file",
        "s",
        "stack",
        "n",
        "namespace",
        "context",
        "l",
        "selector",
    ]
) | {"b", "body", "c", "container", "parallelism", "lock-timeout", "chdir", "cwd", "C", "color"}
_DECLARATIONS: Final = re.compile(r"\.(ya?ml|tf|py)$")
_PLACEHOLDER: Final = re.compile(r"\{([A-Z]*)\}")
_ADDRESS: Final = re.compile(r"[a-z_]+[./]([\w-]+)")
"""An address of Terraform or kubectl: cluster.train, cluster/train."""


class _TypedLine(NamedTuple):
    """The words of a typed command line, and its flags without dashes, with their values."""

    words: list[str]
    flags: dict[str, str | None]


def find_answer(arguments: Sequence[str], error: click.UsageError, root: click.Group) -> str | None:
    """Return a message with gpuform's command for a wrong command line, or None.

    Args:
        arguments: the words after `gpuform`.
        error: the error of click for the words.
        root: the command `gpuform`.
    """
    line = _split_line(arguments, root)
    tool = line.words.pop(0) if line.words[:1] and line.words[0] in _TOOLS else ""
    path, command = _find_command(root, line.words)
    fitting_guesses = [
        guess
        for guess in GUESSES
        if _fits(guess.pattern.split(), line)
        # A wrong flag of a command is no command of another tool.
        and ("-" in guess.pattern or not path or _is_about_words(error))
    ]
    if fitting_guesses:
        guess = max(fitting_guesses, key=_rank_guess)
        answer = _build_command(guess.command, line, guess.pattern.split(), root)
        return f"gpuform has no `{_describe(guess, line)}`: `{answer}` {guess.effect}"
    words = " ".join(path)
    if tool and words:
        return f"gpuform has no `{tool}`: write `{_build_command(words, line, [], root)}`"
    accepted = {name for option in _list_options(command) for name in option.opts}
    foreign_flags = [f"-{name}" for name in line.flags if name in _SAME_MEANING]
    foreign_flags = [name for name in foreign_flags if f"-{name}" not in accepted]
    if words and foreign_flags and isinstance(error, click.NoSuchOption | click.BadParameter):
        answer = _build_command(words, line, [], root)
        return f"gpuform has no `{foreign_flags[0]}`: write `{answer}`"
    return None


def _is_about_words(error: click.UsageError) -> bool:
    """Return True if the words of the command line are wrong, rather than the flags."""
    parameter = getattr(error, "param", None)
    is_about_flags = isinstance(error, click.NoSuchOption | click.BadOptionUsage)
    return not is_about_flags and not isinstance(parameter, click.Option)


def _split_line(arguments: Sequence[str], root: click.Group) -> _TypedLine:
    """Split a command line up to `--` into words and flags."""
    line = _TypedLine([], {})
    arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("-"):
            line.words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        options = _list_options(_find_command(root, line.words)[1])
        own = [option for option in options if {f"-{name}", f"--{name}"} & {*option.opts}]
        takes_value = not own[0].is_flag if own and line.words else name in _FLAGS_WITH_VALUES
        if takes_value and not equals and remaining and not remaining[0].startswith("-"):
            value = remaining.pop(0)
        line.flags[name] = value or None
    return line


def _fits(pattern: Sequence[str], line: _TypedLine) -> bool:
    """Return True if the line begins with the pattern's words and has the pattern's flags."""
    flags = {word.lstrip("-") for word in pattern if word.startswith("-")}
    words = [word for word in pattern if not word.startswith("-")]
    return (
        len(words) <= len(line.words)
        and flags <= line.flags.keys()
        and all(
            typed == word
            or (word == "NAME" and not typed.isdecimal())
            or (word == "FILE" and bool(_DECLARATIONS.search(typed)))
            for word, typed in zip(words, line.words, strict=False)
        )
    )


def _rank_guess(guess: Guess) -> tuple[int, int]:
    """Return the order of fitting guesses: more words first, and then fewer of any value."""
    words = guess.pattern.split()
    return len(words), -words.count("NAME")


def _describe(guess: Guess, line: _TypedLine) -> str:
    """Return the typed words the guess is about."""
    pattern = guess.pattern.split()
    flags = [word for word in pattern if word.startswith("-")]
    return shlex.join([*line.words[: len(pattern) - len(flags)], *flags])


def _build_command(
    command: str, line: _TypedLine, pattern: Sequence[str], root: click.Group
) -> str:
    """Return gpuform's command line with the words and the flags of the typed line.

    Words of the pattern, and flags that the command does not have, are left out.
    """
    plain_words = [word for word in pattern if word[:1] != "-" and word not in ("NAME", "FILE")]
    values = line.words[len(plain_words) :]
    # A kind may come before the name: `describe node gpu-0`.
    remaining = values[-1:] if _PLACEHOLDER.findall(command) in (["RESOURCE"], ["NODE"]) else values

    def fill_in(placeholder: re.Match[str]) -> str:
        is_resource = "{RESOURCE}" in command
        return _quote(remaining.pop(0), is_resource) if remaining else placeholder[1]

    filled = " ".join(["gpuform", _PLACEHOLDER.sub(fill_in, command)]).strip()
    used_flags = {word.lstrip("-") for word in pattern}
    _, target = _find_command(root, shlex.split(filled)[1:])
    accepted = {name: option for option in _list_options(target) for name in option.opts}
    translated = [
        _translate_flag(name, value, accepted)
        for name, value in line.flags.items()
        if name not in used_flags
    ]
    return " ".join([filled, *(flag for flag in translated if flag and flag not in filled)])


def _translate_flag(
    name: str, value: str | None, accepted: Mapping[str, click.Option]
) -> str | None:
    """Return the flag of gpuform for another tool's flag, or None if the command has none."""
    if name in {"o", "output"} and value == "json":
        return "--json" if "--json" in accepted else None
    is_own = f"--{name}" in accepted and name != "config"
    own_flag = f"--{name}" if is_own else _SAME_MEANING.get(name, "")
    option = accepted.get(own_flag.partition(" ")[0])
    if option is None:
        return None
    takes_value = not option.is_flag and " " not in own_flag
    own_flag = f"{own_flag} {{}}" if takes_value else own_flag
    return own_flag.replace("{}", _quote(value or "VALUE", name in {"target", "replace"}))


def _quote(word: str, is_resource: bool) -> str:
    """Return a word quoted for a shell; a resource's address (cluster.train) becomes the name."""
    address = _ADDRESS.fullmatch(word) if is_resource else None
    return shlex.quote(address[1] if address else word)


def _find_command(root: click.Group, words: Sequence[str]) -> tuple[list[str], click.Command]:
    """Return the words of a command's name, and the command; `root` if no word is a command."""
    command: click.Command = root
    path: list[str] = []
    for word in words:
        subcommand = None
        if isinstance(command, click.Group):
            subcommand = command.get_command(click.Context(command), word)
        if subcommand is None:
            break
        command = subcommand
        path.append(word)
    return path, command


def _list_options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]
