"""A platform that repeats what it is sent: no secret is printed, logged or written anywhere."""

import base64
import gzip
import html
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest
from support.platforms.echoing_platform import EchoingPlatform, serve_echoing_platform
from support.platforms.text_encodings import ENCODINGS

from gpuform.providers.emulator.server import environment
from gpuform.providers.values import PART
from gpuform.schemas.safe_text import MASK

Run = Any

NAMES = [
    name if name in ("json", "base64 of json") else pytest.param(name, marks=pytest.mark.slow)
    for name in ENCODINGS
]
SCRIPT = 'set -o pipefail "$HOME"\nexport TOKEN=\'q"7\\n-ündäch%41-zebra\'\nvault-0815-open | tee'
TOKEN = "xoxb&<4711>/tüte+9\\8"
SHORT = "p9'x\"7"
SECRETS = {"script": SCRIPT, "token": TOKEN, "short": SHORT}
PROGRAM = """
import pulumi
from gpuform.providers.tensorone import Cluster

config = pulumi.Config()
work = Cluster(
    "work",
    name="work",
    gpu_type="A100",
    gpu_count=1,
    storage_gb=100,
    region="us-west-2",
    project_id="proj_456",
    docker_image="a/b:c",
    environment_variables={
        "SCRIPT": config.require_secret("script"),
        "TOKEN": config.require_secret("token"),
        "SHORT": config.require_secret("short"),
    },
)
pulumi.export("status", work.status)
"""


@pytest.fixture
def echoing_platform(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EchoingPlatform]:
    (project / "__main__.py").write_text(PROGRAM)
    for name, value in SECRETS.items():
        assert dev("config", "set", "--secret", name, "--", value).code == 0
    with serve_echoing_platform() as (url, echoing_platform):
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        yield echoing_platform


def undo_escapes(escaped: str) -> str:
    """Return the text with one layer of every escape undone, not by the code under test."""
    escaped = html.unescape(unquote_plus(escaped))
    units = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), escaped)
    escaped = re.sub(r"\\+x([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), units)
    escaped = escaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    with suppress(UnicodeError):
        escaped = escaped.encode("latin-1").decode()
    return re.sub(r"\\+n", "\n", escaped).replace("\\", "")


def decode_variants(decoded: str) -> Iterator[str]:
    """Yield the text and all decoded parts, like somebody in search of secrets."""
    for _ in range(4):
        yield " ".join(decoded.split())
        for match in re.finditer(r"[A-Za-z0-9+/_-]{12,}|[0-9a-f]{24,}", decoded):
            run = match[0].replace("-", "+").replace("_", "/")
            for start in range(4):
                quads = run[start : start + (len(run) - start) // 4 * 4]
                yield base64.b64decode(quads).decode(errors="replace")
            if re.fullmatch("[0-9a-f]+", match[0]):
                yield bytes.fromhex(match[0][: len(match[0]) // 2 * 2]).decode(errors="replace")
        decoded = undo_escapes(decoded)


def assert_no_secret(text: str) -> None:
    """Assert that the text has no part of the longer secrets, nor the short one."""
    readings = [*decode_variants(text)]
    for secret in (SCRIPT, TOKEN):
        secret_forms = {
            " ".join(secret_form.split()) for secret_form in (secret, undo_escapes(secret))
        }
        for part in {s[at : at + PART] for s in secret_forms for at in range(len(s) - PART + 1)}:
            for reading in readings:
                assert part not in reading, (part, reading[:2000])
    assert not any(SHORT in reading for reading in readings)


def read_written_files(project: Path) -> Iterator[tuple[str, str]]:
    """Yield path and text of every file of the commands."""
    for path in sorted(project.rglob("*")):
        if path.is_file() and path.name != "__main__.py":
            content = path.read_bytes()
            yield (
                str(path),
                (gzip.decompress(content) if path.suffix == ".gz" else content).decode(
                    errors="replace"
                ),
            )


def run_reporting_commands(dev: Run) -> str:
    """Run the usual commands after a failure, and return the output."""
    commands = (
        ("up", "--yes", "--skip-preview", "--event-log", "events.json", "--profile", "p.json"),
        ("up", "--yes", "--skip-preview", "--json"),
        ("logs",),
        ("logs", "--json"),
        ("stack", "history", "--json"),
        ("stack", "export"),
        ("status",),
        ("doctor", "--json"),
        ("orphans", "--json"),
    )
    ran = [dev(*command) for command in commands]
    return "\n".join(result.out + result.err for result in ran)


@pytest.mark.parametrize("name", NAMES)
def test_secrets_in_a_quoted_request_are_masked(
    name: str, dev: Run, project: Path, echoing_platform: EchoingPlatform
) -> None:
    spelling = ENCODINGS[name]

    def refuse(body: dict[str, Any], key: str) -> str:
        values = body.get("environment_variables", {}).values()
        quoted = [spelling(value) for value in (*values, key, json.dumps(body))]
        return f"not possible: {' and '.join(quoted)}"

    echoing_platform.refuse = refuse
    output = run_reporting_commands(dev)
    assert "answered 400: not possible" in output
    assert_no_secret(output)
    for path, content in read_written_files(project):
        assert_no_secret(f"{path} {content}")


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_secrets_in_the_message_of_a_failed_object_are_masked(
    name: str, dev: Run, project: Path, echoing_platform: EchoingPlatform
) -> None:
    """The message is the reason why the object is not ready, in state and history."""
    message = f"cannot start <{ENCODINGS[name](SCRIPT)}> <{ENCODINGS[name](TOKEN)}>"

    def alter(answer: Any) -> Any:
        data = answer.get("data") if isinstance(answer, dict) else None
        if isinstance(data, dict) and "status_details" in data:
            data["status"] = "error"
            data["status_details"]["message"] = message
        return answer

    echoing_platform.alter = alter
    output = run_reporting_commands(dev)
    assert "cannot start" in output
    assert_no_secret(output)
    for path, content in read_written_files(project):
        assert_no_secret(f"{path} {content}")
    assert MASK in (project / ".pulumi/stacks/demo/dev.json").read_text()


def test_an_object_named_after_a_secret_is_masked(
    dev: Run, project: Path, echoing_platform: EchoingPlatform
) -> None:
    """The platform still has an object of that name, which no stack owns."""
    (project / "__main__.py").write_text(PROGRAM.replace('name="work"', 'name="vault-0815-open"'))
    assert dev("up", "--yes", "--skip-preview").code == 0
    urn = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.tensorone:Cluster::work"
    assert dev("state", "delete", urn, "--yes").code == 0
    for command in (("orphans",), ("orphans", "--json"), ("doctor",), ("doctor", "--json")):
        ran = dev(*command)
        assert "0815" not in ran.out + ran.err
    assert MASK in dev("orphans").out
