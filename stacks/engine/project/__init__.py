"""Read a Pulumi project: Pulumi.yaml, the stacks' settings, and the program's modules.

`engine.stack`, the language host and the `config` commands call this package.
"""

from gpuform.stacks.engine.project import stack_settings, yaml_text
from gpuform.stacks.engine.project.process_use import (
    PROCESS_USE,
    get_folder_and_entry,
    import_project_modules,
    mark_as_run,
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
    find_topology_file,
    load_project,
    read_text,
)
from gpuform.stacks.engine.project.stack_settings import (
    SECURE,
    StackSettings,
    convert_encrypted,
    format_set_command,
    get_value_at,
    is_secure,
    matches_type,
    remove_value_at,
    split_key,
    to_config_text,
)

__all__ = [
    "NAME",
    "PROCESS_USE",
    "SECURE",
    "ConfigDefault",
    "NoProject",
    "OtherRuntime",
    "Project",
    "ProjectError",
    "StackSettings",
    "convert_encrypted",
    "find_project",
    "find_topology_file",
    "format_set_command",
    "get_folder_and_entry",
    "get_value_at",
    "import_project_modules",
    "is_secure",
    "load_project",
    "mark_as_run",
    "matches_type",
    "read_text",
    "remove_value_at",
    "restore_process",
    "split_key",
    "stack_settings",
    "to_config_text",
    "yaml_text",
]
