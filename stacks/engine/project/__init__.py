"""A Pulumi project on disk: Pulumi.yaml, the stacks' settings, and the program's modules."""

from gpuform.stacks.engine.project import config_paths, yaml_text
from gpuform.stacks.engine.project.config_paths import get_in, remove_in, split
from gpuform.stacks.engine.project.module_imports import (
    folder_and_entry,
    import_project_modules,
    restore_process,
)
from gpuform.stacks.engine.project.project import (
    NAME,
    ConfigDefault,
    NoProject,
    OtherRuntime,
    Project,
    ProjectError,
    find_project,
    load_project,
    read_text,
    topology_in,
)
from gpuform.stacks.engine.project.stack_settings import (
    SECURE,
    StackSettings,
    is_of_type,
    is_secure,
    to_text,
)

__all__ = [
    "NAME",
    "SECURE",
    "ConfigDefault",
    "NoProject",
    "OtherRuntime",
    "Project",
    "ProjectError",
    "StackSettings",
    "config_paths",
    "find_project",
    "folder_and_entry",
    "get_in",
    "import_project_modules",
    "is_of_type",
    "is_secure",
    "load_project",
    "read_text",
    "remove_in",
    "restore_process",
    "split",
    "to_text",
    "topology_in",
    "yaml_text",
]
