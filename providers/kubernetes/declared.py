"""The kubeconfig of a Kubernetes that the stack does not make, but names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.providers.asking import require_asked
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.kubeconfig import (
    comes_with_project,
    flattened,
    refuse_files,
)
from gpuform.schemas.drain import KubernetesInputs


def declared_kubeconfig(
    declared: KubernetesInputs, where: str = "drain.kubernetes.", *, is_typed: bool = False
) -> str:
    """Return the YAML of the declared kubeconfig, with its context as the current one.

    `where` begins the names of its fields, for messages. A kubeconfig that comes with the project
    may name no file of this machine, unless a person has typed its path (`is_typed`). Raises
    GpuformError when it cannot be read or used, or this run may not ask it.
    """
    import yaml  # noqa: PLC0415 - only who asks a Kubernetes pays for it

    path = Path(declared.kubeconfig or "~/.kube/config").expanduser()
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            return ""  # whoever reads it says that it is none
        if declared.context is not None:
            if declared.context not in _contexts_of(config):
                # Which contexts a file has is nothing to tell whoever may not use it.
                require_asked(declared, f"{where}kubeconfig: {path}", _first_server_of(config))
                names = ", ".join(_contexts_of(config)) or "none"
                raise GpuformError(
                    f"{where}context: {path} has no context {declared.context}; it has {names}"
                )
            config["current-context"] = declared.context
        elif not config.get("current-context"):
            raise GpuformError(
                f"{where}kubeconfig: {path} has no current context",
                hint=f"declare {where}context",
            )
        # Before the files that it names are read.
        require_asked(declared, f"{where}kubeconfig: {path}", _server_of(config))
        if not is_typed and comes_with_project(declared.kubeconfig or str(path), path):
            refuse_files(config, f"{where}kubeconfig: {path}")
            return str(yaml.safe_dump(config))
        return str(yaml.safe_dump(flattened(config, path.parent)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GpuformError(
            f"{where}kubeconfig: {path} cannot be read ({type(error).__name__})",
            hint="declare the path of a kubeconfig",
        ) from None


def _contexts_of(config: Mapping[str, Any]) -> list[str]:
    contexts = config.get("contexts") or ()
    return [str(each.get("name")) for each in contexts if isinstance(each, dict)]


def _first_server_of(config: Mapping[str, Any]) -> str:
    try:
        return str(config["clusters"][0]["cluster"]["server"])
    except (KeyError, TypeError, IndexError):
        return ""


def _server_of(config: Mapping[str, Any]) -> str:
    """The address of the current context; empty where it has none."""
    try:
        contexts = {each["name"]: each["context"] for each in config["contexts"]}
        clusters = {each["name"]: each["cluster"] for each in config["clusters"]}
        return str(clusters[contexts[config["current-context"]]["cluster"]]["server"])
    except (KeyError, TypeError):
        return ""  # whoever reads it says what is wrong
