"""Render the identities of CI jobs at the clouds as files: who may use a role, and its rights.

`Clouds` says which clouds the jobs sign in to, from the URLs of backends and keys. The renderers of
workflows call `render_identities`, and `gpuform doctor --ci` calls `find_identity_problems`. Jobs
that plan get a role that only reads; the role of an apply trusts the jobs of one environment alone.
Subjects of tokens: docs.github.com, "OpenID Connect reference", and docs.gitlab.com, "OpenID
Connect (OIDC) Authentication Using ID Tokens".
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.code_hosts.review_target import CodeHostName
from gpuform.stacks.engine.store import strip_credentials

IDENTITY_FOLDER: Final = ".gpuform-ci"
"""The folder of the files, below the root of the repository."""
_ISSUERS: Final[Mapping[str, str]] = {
    "github": "https://token.actions.githubusercontent.com",
    "gitlab": "https://gitlab.com",
}
_PLACEHOLDERS: Final = re.compile(r"OWNER/NAME|ACCOUNT_ID|BUCKET|REGION|KEY_ID|PROJECT_NUMBER")
_REMOTE_NAME: Final = re.compile(
    r"(?m)^\s*url = (?:\w+://[^/\s]+/|[^\s:/]+:)([\w.-]+(?:/[\w.-]+?)+)(?:\.git)?/?$"
)
_READ_OBJECTS: Final = ("s3:GetObject",)
_WRITE_OBJECTS: Final = (*_READ_OBJECTS, "s3:PutObject", "s3:DeleteObject")
_READ_KEY: Final = ("kms:Decrypt",)
_WRITE_KEY: Final = (*_READ_KEY, "kms:Encrypt", "kms:GenerateDataKey")
_READ_ACTIONS: Final = frozenset({*_READ_OBJECTS, *_READ_KEY, "s3:ListBucket"})


_CLOUD_BY_SCHEME: Final[Mapping[str, str]] = {
    "s3": "aws",
    "gs": "google",
    "azblob": "azure",
    "awskms": "aws",
    "gcpkms": "google",
    "azurekeyvault": "azure",
}
_EXTRA_BY_SCHEME: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s3", "gs", "azblob"), "cloud"),
    **{scheme: scheme for scheme in ("awskms", "azurekeyvault", "gcpkms", "hashivault")},
}
_SIGN_IN_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "aws": ("AWS_ROLE_ARN", "AWS_REGION"),
    "azure": ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID"),
    "azblob": ("AZURE_STORAGE_ACCOUNT",),
    "google": ("GCP_WORKLOAD_IDENTITY_PROVIDER", "GCP_SERVICE_ACCOUNT"),
}
_GPUFORM_VARIABLES: Final = ("AWS_REGION", "AZURE_STORAGE_ACCOUNT")
_VAULT_SECRETS: Final = ("VAULT_ADDR", "VAULT_TOKEN")


@dataclass(frozen=True, slots=True)
class Clouds:
    """The clouds of stacks, to which jobs of CI sign in.

    `schemes` are those of the URLs of the backend and the secrets provider; `urls` are the URLs
    without credentials.
    """

    schemes: tuple[str, ...] = field(default=())
    urls: tuple[str, ...] = field(default=())

    @classmethod
    def from_urls(cls, urls: Iterable[str]) -> "Clouds":
        """Return the clouds of URLs; URLs of other schemes are left out."""
        known_urls = [
            strip_credentials(url) for url in urls if url.partition("://")[0] in _EXTRA_BY_SCHEME
        ]
        schemes = [url.partition("://")[0] for url in known_urls]
        return cls(tuple(dict.fromkeys(schemes)), tuple(dict.fromkeys(known_urls)))

    @property
    def names(self) -> list[str]:
        """Return the clouds to which the jobs sign in."""
        return sorted(
            {_CLOUD_BY_SCHEME[scheme] for scheme in self.schemes if scheme in _CLOUD_BY_SCHEME}
        )

    @property
    def extras(self) -> list[str]:
        """Return the extras of gpuform which the CI jobs install for these clouds."""
        return sorted({_EXTRA_BY_SCHEME[scheme] for scheme in self.schemes})

    @property
    def credentials(self) -> list[str]:
        """Return the jobs' secrets, without the platforms'."""
        return list(_VAULT_SECRETS) if "hashivault" in self.schemes else []

    @property
    def variables(self) -> list[str]:
        """Return the variables for the sign-in, to be set by users."""
        return [
            name
            for cloud_or_scheme in (*self.names, *self.schemes)
            for name in _SIGN_IN_VARIABLES.get(cloud_or_scheme, ())
        ]

    def iterate_environment(self) -> Iterator[str]:
        """Yield the clouds' variables which gpuform itself reads."""
        return (name for name in self.variables if name in _GPUFORM_VARIABLES)


@dataclass(frozen=True, slots=True)
class JobRole:
    """A role of CI jobs: `subjects` of their tokens, in which a `*` stands for any text."""

    name: str
    subjects: Sequence[str]
    may_write: bool


def list_roles(
    code_host: CodeHostName,
    repository: str,
    branch: str,
    reading_environments: Sequence[str],
    environments: Sequence[str],
) -> list[JobRole]:
    """Return the cloud role for planning jobs, and a role for each applying environment.

    Without `reading_environments` the jobs that plan are in no environment.
    """
    if code_host == "gitlab":
        # Its tokens do not name the environment in their subject: a protected branch limits them.
        prefix = f"project_path:{repository}:ref_type:branch:ref:"
        applying = [JobRole(name, [f"{prefix}{branch}"], True) for name in environments]
        return [JobRole("gpuform-plan", [f"{prefix}*"], False), *applying]
    prefix = f"repo:{repository}:"
    reading = [f"{prefix}environment:{name}" for name in reading_environments] or [
        f"{prefix}pull_request",
        f"{prefix}ref:refs/heads/{branch}",
        f"{prefix}ref:refs/heads/gh-readonly-queue/{branch}/*",
    ]
    applying = [JobRole(name, [f"{prefix}environment:{name}"], True) for name in environments]
    return [JobRole("gpuform-plan", reading, False), *applying]


def get_identity_folder(code_host: CodeHostName, label: str) -> str:
    """Return the folder of the files of a set of workflows, relative to the repository's root."""
    return f"{IDENTITY_FOLDER}/{code_host}-{label}" if label else f"{IDENTITY_FOLDER}/{code_host}"


def render_identities(
    code_host: CodeHostName, roles: Sequence[JobRole], urls: Sequence[str], label: str = ""
) -> dict[str, str]:
    """Return the files of the clouds' roles: path from the repository's root -> text.

    Args:
        code_host: whose tokens the roles trust.
        roles: the roles of the jobs.
        urls: the URLs of the backends and of the secrets providers.
        label: the label of a further project's workflows; empty for none.
    """
    folder = get_identity_folder(code_host, label)
    schemes = {url.partition("://")[0] for url in urls}
    documents: dict[str, Any] = {}
    for role in roles:
        if schemes & {"s3", "awskms"}:
            documents[f"aws-{role.name}-trust"] = _build_aws_trust(code_host, role)
            documents[f"aws-{role.name}-policy"] = _build_aws_policy(role, urls)
        if schemes & {"gs", "gcpkms"}:
            documents[f"google-{role.name}-trust"] = _build_google_trust(code_host, role)
        if schemes & {"azblob", "azurekeyvault"}:
            for number, subject in enumerate(role.subjects, 1):
                name = f"azure-{role.name}-{number}"
                documents[name] = _build_azure_credential(code_host, role, number, subject)
    return {
        f"{folder}/{name}.json": json.dumps(document, indent=2) + "\n"
        for name, document in documents.items()
    }


def _build_aws_trust(code_host: CodeHostName, role: JobRole) -> dict[str, Any]:
    """Return the trust policy of an IAM role (docs.aws.amazon.com, "Create a role for OIDC")."""
    host = _ISSUERS[code_host].removeprefix("https://")
    audience = "sts.amazonaws.com" if code_host == "github" else _ISSUERS[code_host]
    is_exact = all("*" not in subject for subject in role.subjects)
    subjects = {f"{host}:sub": list(role.subjects)}
    audiences = {f"{host}:aud": audience}
    condition = (
        {"StringEquals": {**audiences, **subjects}}
        if is_exact
        else {"StringEquals": audiences, "StringLike": subjects}
    )
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Federated": f"arn:aws:iam::ACCOUNT_ID:oidc-provider/{host}"},
                "Action": "sts:AssumeRoleWithWebIdentity",
                "Condition": condition,
            }
        ],
    }


def _build_aws_policy(role: JobRole, urls: Sequence[str]) -> dict[str, Any]:
    """Return the rights of an IAM role on the state's bucket and the key of secrets."""
    statements = []
    for url in dict.fromkeys(urls):
        scheme, _, rest = url.partition("?")[0].partition("://")
        if scheme == "s3":
            bucket, _, prefix = rest.strip("/").partition("/")
            objects = "/".join(filter(None, [bucket, prefix, "*"]))
            actions = _WRITE_OBJECTS if role.may_write else _READ_OBJECTS
            statements += [
                _allow(["s3:ListBucket"], f"arn:aws:s3:::{bucket}"),
                _allow(actions, f"arn:aws:s3:::{objects}"),
            ]
        if scheme == "awskms":
            arn = rest.lstrip("/")
            # A key's alias grants nothing: a policy names the key itself.
            key = arn if arn.startswith("arn:") else "arn:aws:kms:REGION:ACCOUNT_ID:key/KEY_ID"
            statements.append(_allow(_WRITE_KEY if role.may_write else _READ_KEY, key))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(actions: Sequence[str], resource: str) -> dict[str, Any]:
    """Return a statement of an IAM policy which allows `actions` on `resource`."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


def _build_google_trust(code_host: CodeHostName, role: JobRole) -> dict[str, Any]:
    """Return the IAM policy of a service account (cloud.google.com, "principal identifiers").

    A subject with a `*` is the repository, by the attribute `repository` of the pool.
    """
    pool = (
        "//iam.googleapis.com/projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/"
        f"{code_host}"
    )
    members = [f"principal:{pool}/subject/{subject}" for subject in role.subjects]
    if any("*" in subject for subject in role.subjects):
        repository = role.subjects[0].split(":")[1]
        members = [f"principalSet:{pool}/attribute.repository/{repository}"]
    return {"bindings": [{"role": "roles/iam.workloadIdentityUser", "members": members}]}


def _build_azure_credential(
    code_host: CodeHostName, role: JobRole, number: int, subject: str
) -> dict[str, Any]:
    """Return a federated credential of an application (learn.microsoft.com, "workload identity").

    A subject with a `*` needs a flexible credential, which matches by an expression.
    """
    audience = "api://AzureADTokenExchange" if code_host == "github" else _ISSUERS[code_host]
    matching = {"value": f"claims['sub'] matches '{subject}'", "languageVersion": 1}
    return {
        "name": f"{role.name}-{number}",
        "issuer": _ISSUERS[code_host],
        **({"claimsMatchingExpression": matching} if "*" in subject else {"subject": subject}),
        "audiences": [audience],
    }


def find_repository_name(root: Path) -> str:
    """Return OWNER/NAME of the git remote, or the placeholder `OWNER/NAME` without a clear one."""
    try:
        config = (root / ".git" / "config").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        config = ""
    names = set(_REMOTE_NAME.findall(config))
    return names.pop() if len(names) == 1 else "OWNER/NAME"


def find_identity_problems(root: Path) -> Iterator[tuple[str, bool]]:
    """Yield problems in the files of cloud roles, each with whether wrong jobs get rights.

    The rights of a file that is not JSON are unknown, and count as wrong.
    """
    for file in sorted((root / IDENTITY_FOLDER).rglob("*.json")):
        content = file.read_text(encoding="utf-8")
        label = file.relative_to(root).as_posix()
        if placeholders := sorted(set(_PLACEHOLDERS.findall(content))):
            yield f"{label}: replace {', '.join(placeholders)} before you use it", False
        try:
            document = json.loads(content)
        except json.JSONDecodeError as error:
            yield f"{label}:{error.lineno}: not valid JSON: {error.msg}", True
            continue
        is_of_plan = "-gpuform-plan-" in file.name
        if file.name.endswith("-policy.json"):
            actions = {
                action for entry in document["Statement"] for action in _to_list(entry["Action"])
            }
            if is_of_plan and actions - _READ_ACTIONS:
                names = ", ".join(sorted(actions - _READ_ACTIONS))
                yield f"{label}: jobs that plan may do {names}", True
        elif not is_of_plan and "*" in content:
            yield f"{label}: the role of an apply trusts subjects with a *", True


def _to_list(value: Any) -> list[str]:
    """Return the items of a list, or a single text as a list."""
    return [value] if isinstance(value, str) else list(value)
