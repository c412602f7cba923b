"""Warn, from a Python program, about plugins and imports that the Pulumi CLI will fail on.

The resource classes call this module before the CLI fails with an error that does not help.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pulumi
import yaml
from pulumi.runtime.proto.resource_pb2_grpc import ResourceMonitorStub

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin.locations import (
    find_plugin_on_path,
    find_project_plugin,
    get_plugins_folder,
    list_installed_plugins,
)

CLI_RUNNER = "pulumi-language-python-exec"
"""Program with which the Pulumi CLI runs a Python program.

gpuform's own engine runs programs without it, and needs no plugin.
"""


@cache
def warn_if_plugin_missing() -> None:
    """Warn once per process if the Pulumi CLI runs the program and finds no plugin.

    The caller has checked that the resources are of the plugin form. The CLI would look for the
    plugin on the internet, where there is none.
    """
    command_names = {Path(argument).name for argument in sys.orig_argv}
    if CLI_RUNNER not in command_names or is_plugin_available(os.environ, Path.cwd()):
        return
    pulumi.log.warn(
        "gpuform:form is plugin, and the gpuform plugin is not installed: run `gpuform plugin "
        "install` (`gpuform plugin doctor` shows where the Pulumi CLI looks)"
    )


def warn_about_import(resource_name: str) -> None:
    """Warn that the Pulumi CLI cannot import into the dynamic form, and name the alternatives.

    Does nothing under gpuform's own engine, which can import.
    """
    # The CLI's dynamic host fails with a KeyError before any code of gpuform runs.
    if isinstance(pulumi.runtime.settings.get_monitor(), ResourceMonitorStub):
        pulumi.log.warn(
            f"resource '{resource_name}': import_ does not work in the dynamic form under the "
            "Pulumi CLI, which fails with KeyError: '__provider'. Import the object with `gpuform "
            "up` or `gpuform import`, or use the plugin form (gpuform config set gpuform:form "
            "plugin); once the object is in the state, remove import_"
        )


def is_plugin_available(environ: Mapping[str, str], program_folder: Path) -> bool:
    """Return True if the CLI finds a plugin for the program in this folder, or may find one.

    A file that cannot be read may name a plugin. A Windows path in PULUMI_HOME means that there is
    none.
    """
    project_files = (folder / "Pulumi.yaml" for folder in (program_folder, *program_folder.parents))
    project_file = next((file for file in project_files if file.is_file()), None)
    try:
        if project_file is not None and find_project_plugin(project_file):
            return True
        complete_plugins = (
            plugin
            for plugin in list_installed_plugins(get_plugins_folder(environ))
            if not plugin.partial.exists()
        )
        return find_plugin_on_path(environ) is not None or any(complete_plugins)
    except GpuformError:
        # PULUMI_HOME is a Windows path: the CLI finds nothing in such a folder.
        return False
    except (OSError, yaml.YAMLError):
        # What cannot be read may contain a plugin: no warning is better than a wrong one.
        return True
