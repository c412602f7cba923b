"""Answer command lines of Terraform, Pulumi, kubectl and gh with gpuform's command for the work.

`app` calls `find_answer` when a command line is wrong; a correct one never imports this module.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click

from gpuform.stacks.cli.guess_table import GUESSES, Guess

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
    """Return a message that names gpuform's command for a wrong command line, or None.

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
    """Return True if the words of the command line are wrong, and not its flags."""
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
    """Return True if the line begins with the pattern's words and has its flags."""
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
    """Return the typed words that the guess is about."""
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
    """Return a word for a shell; a resource's address such as cluster.train becomes its name."""
    address = _ADDRESS.fullmatch(word) if is_resource else None
    return shlex.quote(address[1] if address else word)


def _find_command(root: click.Group, words: Sequence[str]) -> tuple[list[str], click.Command]:
    """Return the words that name a command, and the command; `root` for no such word."""
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
