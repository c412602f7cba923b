"""The workflows of `gpuform new ci`: a repository's way from a plan to its apply."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.forges.asked import ForgeName
from gpuform.stacks.workflow_clouds import Clouds

_FOLDER: Final = Path(__file__).parent / "workflows"
_TARGETS: Final[Mapping[ForgeName, Mapping[str, str]]] = {
    "github": {
        ".github/workflows/gpuform.yml": "gpuform.yml.j2",
        ".github/workflows/gpuform-drift.yml": "gpuform-drift.yml.j2",
        ".github/workflows/gpuform-expire.yml": "gpuform-expire.yml.j2",
        ".github/workflows/gpuform-repair.yml": "gpuform-repair.yml.j2",
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
    forge: ForgeName, repository: Repository, *, stack: str, branch: str, clouds: Clouds
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
        **_OF_FORGE[forge](clouds),
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


def _of_github(clouds: Clouds) -> dict[str, Any]:
    names = (*_CREDENTIALS, *clouds.credentials)
    parts = ["setup.yml", *(f"sign-in-{each}.yml" for each in clouds.names)]
    told = f"\n#   variables {', '.join(clouds.variables)}\n#             {_WHY}"

    def identity(indent: int) -> str:
        return f"\n{' ' * indent}id-token: write # to sign in" if clouds.names else ""

    return {
        "setup": "\n".join(_part("github", name) for name in parts),
        "credentials": "\n".join(f"          {n}: ${{{{ secrets.{n} }}}}" for n in names),
        "environment": "".join(f"\n  {n}: ${{{{ vars.{n} }}}}" for n in clouds.environment()),
        "identity": identity,
        "sign_in": told if clouds.names else "",
    }


def _of_gitlab(clouds: Clouds) -> dict[str, Any]:
    needed = (*clouds.variables, *clouds.credentials)
    told = f"\n#   {', '.join(needed)}\n#                              {_WHY}"
    identity = "\n  id_tokens:\n    GITLAB_OIDC_TOKEN:\n      aud: $CI_SERVER_URL"
    return {
        "variables": ", ".join(_CREDENTIALS[1:]),
        "identity": identity if clouds.names else "",
        "signing": "".join("\n" + _part("gitlab", f"sign-in-{each}.yml") for each in clouds.names),
        "sign_in": told if needed else "",
    }


_WHY: Final = "by which the jobs sign in to the cloud of the state and of its secrets"
_OF_FORGE: Final[Mapping[ForgeName, Callable[[Clouds], dict[str, Any]]]] = {
    "github": _of_github,
    "gitlab": _of_gitlab,
}


def _part(forge: ForgeName, name: str) -> str:
    return (_FOLDER / forge / name).read_text(encoding="utf-8").rstrip()
