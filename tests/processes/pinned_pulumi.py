"""Find the Pulumi CLI for the tests: the one of PATH, else the pinned one, which `build` builds.

`tests/real_pulumi/go.mod` pins its version. `python tests/processes/pinned_pulumi.py` builds it
once into the user's caches from modules of the Go module proxy, or prints why it cannot. The folder
also gets the host of dynamic providers, a script of Pulumi's SDK. The host of Python programs is
not a Go module of the proxy: `inline.py` replaces it.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).resolve().parents[1] / "real_pulumi"
PACKAGE: Final = "github.com/pulumi/pulumi/pkg/v3"
DYNAMIC_HOST: Final = '#!/bin/sh\nexec "${PULUMI_PYTHON_CMD:-python3}" -u -m pulumi.dynamic "$@"\n'


def search_path() -> str:
    """Return PATH followed by the folder of the pinned CLI, if built."""
    folder = get_pinned_folder()
    path = os.environ.get("PATH", os.defpath)
    return f"{path}{os.pathsep}{folder}" if (folder / "pulumi").exists() else path


def find_pulumi() -> str | None:
    """Return the path of the Pulumi CLI, or None where there is none."""
    return shutil.which("pulumi", path=search_path())


def get_pulumi_version() -> str:
    """Return the version of `find_pulumi`'s CLI, such as 3.274.1."""
    cli = find_pulumi()
    assert cli is not None, "no Pulumi CLI is there"
    answer = subprocess.run([cli, "version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\d+\.\d+\.\d+", answer)
    assert version, answer
    return version[0]


def has_language_host(language: str = "python") -> bool:
    """Return whether `pulumi` itself can run programs in a language: by its host, on PATH."""
    return shutil.which(f"pulumi-language-{language}", path=search_path()) is not None


def read_pinned_version() -> str:
    """Return the CLI's version in `go.mod`, such as 3.274.1."""
    version = re.search(rf"{re.escape(PACKAGE)} v(\S+)", (MODULE / "go.mod").read_text())
    assert version is not None
    return version[1]


def get_pinned_folder() -> Path:
    """Return the folder of the pinned CLI; another `go.sum` gets another one."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:12]
    return caches / "gpuform" / f"pulumi-{read_pinned_version()}-{digest}"


def build() -> str:
    """Build the pinned CLI if missing, and return the reason of a failure or an empty text."""
    folder = get_pinned_folder()
    if (folder / "pulumi").exists():
        return ""
    go = shutil.which("go")
    if go is None:
        return "Go is not on PATH"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several clones share the folder
        if (folder / "pulumi").exists():
            return ""
        version = (
            f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={read_pinned_version()}"
        )
        new = folder / "pulumi.new"
        argv = [go, "build", "-ldflags", version, "-o", str(new), f"{PACKAGE}/cmd/pulumi"]
        done = subprocess.run(argv, cwd=MODULE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return (done.stderr.strip() or "go build failed").splitlines()[-1]
        host = folder / "pulumi-resource-pulumi-python"
        host.write_text(DYNAMIC_HOST)
        host.chmod(0o755)
        new.rename(folder / "pulumi")
    return ""


POLICY_SDK: Final = "pulumi-policy==1.21.0"


def find_policy_sdk() -> Path | None:
    """Return the folder with the package pulumi_policy, or None where it is not installed."""
    folder = get_pinned_folder() / "policy"
    return folder if (folder / "pulumi_policy").exists() else None


def install_policy_sdk() -> None:
    """Install pulumi_policy beside the pinned CLI; without a network it stays missing.

    It asks for an older protobuf than the lock file has, and works with the present one, so that it
    gets a folder of its own, without its dependencies.
    """
    uv = shutil.which("uv")
    if find_policy_sdk() is None and uv is not None:
        folder = get_pinned_folder() / "policy"
        argv = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), POLICY_SDK]
        subprocess.run(argv, capture_output=True, check=False)


def main() -> None:
    """Build the pinned CLI, and print the path or the reason of a failure."""
    reason = build()
    if not reason:
        install_policy_sdk()
    result = f"not built: {reason}" if reason else f"{get_pinned_folder() / 'pulumi'}"
    print(f"Pulumi CLI {read_pinned_version()}: {result}")  # noqa: T201 - its purpose
    sys.exit(0)


if __name__ == "__main__":
    main()
