"""The workflows of `gpuform new ci`: a repository's way from a plan to its apply."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.forges.asked import ForgeName

_FOLDER: Final = Path(__file__).parent / "workflows"
_TARGETS: Final[Mapping[ForgeName, Mapping[str, str]]] = {
    "github": {
        ".github/workflows/gpuform.yml": "gpuform.yml.j2",
        ".github/workflows/gpuform-drift.yml": "gpuform-drift.yml.j2",
        ".github/workflows/gpuform-expire.yml": "gpuform-expire.yml.j2",
    },
    "gitlab": {".gitlab-ci.yml": "gitlab-ci.yml.j2"},
}
_CREDENTIALS: Final = (
    *("PULUMI_CONFIG_PASSPHRASE", "TOGETHER_API_KEY", "SCP_TF_ACCESS_KEY", "SCP_TF_SECRET_KEY"),
    *("TENSORONE_API_KEY", "AIOS_REGISTRY_URL", "AIOS_PARSER_URL", "LENS_URL", "LENS_TOKEN"),
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./ -]+")


@dataclass(frozen=True, slots=True)
class Repository:
    """`root` is the repository's folder, and `project` the folder of Pulumi.yaml in it."""

    root: Path
    project: Path

    @classmethod
    def around(cls, project: Path) -> "Repository":
        """The git repository that the project is in; the project's own folder where there is none.

        Raises EngineError when the folder has no Pulumi.yaml.
        """
        project = project.resolve()
        if not (project / "Pulumi.yaml").is_file():
            raise EngineError(
                f"{project} has no Pulumi.yaml: there is nothing to plan",
                hint="`gpuform new TEMPLATE` makes a project; --dir FOLDER names one",
            )
        folders = (project, *project.parents)
        return cls(next((each for each in folders if (each / ".git").exists()), project), project)

    @property
    def directory(self) -> str:
        """The project's folder, from the root."""
        return self.project.relative_to(self.root).as_posix()


def workflow_files(
    forge: ForgeName, repository: Repository, *, stack: str, branch: str
) -> dict[str, str]:
    """File name, from the repository's root -> text. EngineError for what YAML would misread."""
    directory = repository.directory
    for what, text in (("folder", directory), ("stack", stack), ("branch", branch)):
        if not _PLAIN.fullmatch(text):
            raise EngineError(
                f"the {what} {text!r} cannot be written into a workflow",
                hint="use letters, digits, spaces, hyphens, underscores, dots and slashes",
            )
    values = {
        "stack": stack,
        "branch": branch,
        "directory": directory,
        "prefix": "" if directory == "." else f"{directory}/",
        "setup": (_FOLDER / "github/setup.yml").read_text(encoding="utf-8").rstrip(),
        "credentials": "\n".join(f"          {n}: ${{{{ secrets.{n} }}}}" for n in _CREDENTIALS),
        "variables": ", ".join(_CREDENTIALS[1:]),
    }
    environment = Environment(  # noqa: S701 - YAML; what goes in is checked above
        loader=FileSystemLoader(_FOLDER / forge),
        variable_start_string="[[",
        variable_end_string="]]",
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    targets = _TARGETS[forge]
    return {path: environment.get_template(name).render(values) for path, name in targets.items()}
