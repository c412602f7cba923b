"""The Pulumi CLI that is installed beside gpuform, if there is one."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

TRIED_VERSION: Final = (3, 274, 1)
"""The newest Pulumi CLI that the suite of docs/reference/pulumi-cli.md was run with."""
LAST_TRIED: Final = TRIED_VERSION[:2]


def cli_version(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Major and minor version of the `pulumi` on PATH; None where there is none that tells it."""
    cli = shutil.which("pulumi", path=environ.get("PATH"))
    if cli is None:
        return None
    try:
        told = subprocess.run(  # noqa: S603 - the program that the user would start
            [cli, "version"],
            env={**environ, "PULUMI_SKIP_UPDATE_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"v(\d+)\.(\d+)", told)
    return (int(version[1]), int(version[2])) if version else None
