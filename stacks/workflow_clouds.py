"""What the jobs of a workflow need of a cloud: for the backend, and for the stack's secrets."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

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
