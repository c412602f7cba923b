"""Diagnostics for people and for tools: text, JSON, SARIF, and GitHub's workflow commands."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

from gpuform.stacks.document.diagnostics import Diagnostic

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def text(found: Sequence[Diagnostic]) -> str:
    """`file:line:column: message`, with what to do on a line of its own."""
    return "\n".join(map(str, found))


def as_json(found: Sequence[Diagnostic]) -> str:
    """An array of objects: file, line, column, severity, rule, message, hint.

    What is wrong in a module file has `included_at`, too: the places that include it.
    """
    return json.dumps([_plain(each) for each in found], indent=2, ensure_ascii=False)


def sarif(found: Sequence[Diagnostic]) -> str:
    """A log of SARIF 2.1.0, as code scanning takes it."""
    rules = sorted({each.rule for each in found})
    driver = {"name": "gpuform", "rules": [{"id": rule} for rule in rules]}
    run = {"tool": {"driver": driver}, "results": [_result(each) for each in found]}
    log = {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def github(found: Sequence[Diagnostic]) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    return "\n".join(map(_command, found))


FORMATS: Final[Mapping[str, Callable[[Sequence[Diagnostic]], str]]] = MappingProxyType(
    {"text": text, "json": as_json, "sarif": sarif, "github": github}
)
"""By the name that --format takes."""


def _plain(each: Diagnostic) -> dict[str, Any]:
    place = each.place
    included = [{"file": at.file, "line": at.line, "column": at.column} for at in place.included]
    return {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        **({"included_at": included} if included else {}),
        "severity": each.severity,
        "rule": each.rule,
        "message": each.message,
        "hint": each.hint,
    }


def _result(each: Diagnostic) -> dict[str, Any]:
    place = each.place
    return {
        "ruleId": each.rule,
        "level": each.severity,
        "message": {"text": _whole(each)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": PurePath(place.file).as_posix()},
                    "region": {"startLine": place.line, "startColumn": place.column},
                }
            }
        ],
    }


def _command(each: Diagnostic) -> str:
    place = each.place
    given = {"file": place.file, "line": place.line, "col": place.column, "title": each.rule}
    shown = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in given.items())
    return f"::{each.severity} {shown}::{_escaped(_whole(each))}"


def _escaped(value: str, more: str = "") -> str:
    """GitHub's own escapes, the per cent sign first."""
    for sign in f"%\r\n{more}":
        value = value.replace(sign, f"%{ord(sign):02X}")
    return value


def _whole(each: Diagnostic) -> str:
    included = "".join(f"\nincluded at {place.own}" for place in each.place.included)
    return f"{each.message}\n{each.hint}{included}" if each.hint else each.message + included
