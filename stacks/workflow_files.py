"""Write the CI workflows of `gpuform new ci`, from a plan to its apply, with access to the
backend's cloud.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpuform.stacks.code_hosts.review_target import CodeHostName
from gpuform.stacks.engine.errors import EngineError

_CLOUDS: Final[Mapping[str, str]] = {
    "s3": "aws",
    "gs": "google",
    "azblob": "azure",
    "awskms": "aws",
    "gcpkms": "google",
    "azurekeyvault": "azure",
}
_EXTRAS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s3", "gs", "azblob"), "cloud"),
    **{each: each for each in ("awskms", "azurekeyvault", "gcpkms", "hashivault")},
}
_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "aws": ("AWS_ROLE_ARN", "AWS_REGION"),
    "azure": ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID"),
    "azblob": ("AZURE_STORAGE_ACCOUNT",),
    "google": ("GCP_WORKLOAD_IDENTITY_PROVIDER", "GCP_SERVICE_ACCOUNT"),
}
_ENVIRONMENT: Final = ("AWS_REGION", "AZURE_STORAGE_ACCOUNT")
_VAULT: Final = ("VAULT_ADDR", "VAULT_TOKEN")


@dataclass(frozen=True, slots=True)
class Clouds:
    """`schemes` are those of the backend's URL and of the secrets provider's."""

    schemes: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, urls: Iterable[str]) -> "Clouds":
        """Those of URLs; of what is no cloud's there is nothing to say."""
        found = [url.partition("://")[0] for url in urls if "://" in url]
        return cls(tuple(dict.fromkeys(each for each in found if each in _EXTRAS)))

    @property
    def names(self) -> list[str]:
        """The clouds that the jobs sign in to."""
        return sorted({_CLOUDS[each] for each in self.schemes if each in _CLOUDS})

    @property
    def extras(self) -> list[str]:
        """gpuform's extras that the jobs need."""
        return sorted({_EXTRAS[each] for each in self.schemes})

    @property
    def credentials(self) -> list[str]:
        """The secrets that they need, beside the platforms'."""
        return list(_VAULT) if "hashivault" in self.schemes else []

    @property
    def variables(self) -> list[str]:
        """The variables that somebody has to set for signing in."""
        return [name for each in (*self.names, *self.schemes) for name in _VARIABLES.get(each, ())]

    def environment(self) -> Iterator[str]:
        """Those of the variables that gpuform itself reads."""
        return (name for name in self.variables if name in _ENVIRONMENT)


_FOLDER: Final = Path(__file__).parent / "workflows"
_TARGETS: Final[Mapping[CodeHostName, Mapping[str, str]]] = {
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
    forge: CodeHostName, repository: Repository, *, stack: str, branch: str, clouds: Clouds
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
_OF_FORGE: Final[Mapping[CodeHostName, Callable[[Clouds], dict[str, Any]]]] = {
    "github": _of_github,
    "gitlab": _of_gitlab,
}


def _part(forge: CodeHostName, name: str) -> str:
    return (_FOLDER / forge / name).read_text(encoding="utf-8").rstrip()
