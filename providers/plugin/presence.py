"""Whether the Pulumi CLI will find the plugin, for the program to say it before the CLI fails."""

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pulumi
import yaml
from pulumi.runtime.proto.resource_pb2_grpc import ResourceMonitorStub

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin.places import installed, named_by, on_path, plugin_folder

RUNNER = "pulumi-language-python-exec"
"""The program in which the CLI runs a Python program; gpuform's engine needs no plugin."""


@cache
def warn_if_missing() -> None:
    """Says what to do, once, where the CLI would look for the plugin on the internet."""
    started = {Path(argument).name for argument in sys.orig_argv}
    if RUNNER not in started or is_there(os.environ, Path.cwd()):
        return
    pulumi.log.warn(
        "gpuform:form is plugin, and the Pulumi CLI has no plugin gpuform: run `gpuform plugin "
        "install` (`gpuform plugin doctor` says where it looks)"
    )


def warn_of_import(resource_name: str) -> None:
    """Say that the Pulumi CLI cannot import into the dynamic form, and which ways there are.

    Its host asks a provider only about what the provider has made: it fails with a KeyError before
    any code of gpuform's runs. An `import_` that is in the state already does no harm.
    """
    if isinstance(pulumi.runtime.settings.get_monitor(), ResourceMonitorStub):
        pulumi.log.warn(
            f"resource '{resource_name}': import_ does not work in the dynamic form under the "
            "Pulumi CLI, which fails with KeyError: '__provider'. Take the object in with `gpuform "
            "up` or `gpuform import`, or in the plugin form (gpuform config set gpuform:form "
            "plugin); once it is in the state, remove import_"
        )


def is_there(environ: Mapping[str, str], program: Path) -> bool:
    """Whether the CLI finds one for a program in this folder; True where that cannot be told."""
    files = (folder / "Pulumi.yaml" for folder in (program, *program.parents))
    project = next((each for each in files if each.is_file()), None)
    try:
        if project is not None and named_by(project):
            return True
        finished = (each for each in installed(plugin_folder(environ)) if not each.partial.exists())
        return on_path(environ) is not None or any(finished)
    except GpuformError:
        return False
    except (OSError, yaml.YAMLError):
        return True
