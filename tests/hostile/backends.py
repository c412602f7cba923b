"""Provide the backends that courses store their state in: a folder or a bucket."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import boto3
from support.servers.bucket_server import KEYS, BucketServer, build_bucket_url


class Backend(Protocol):
    url: str
    environ: dict[str, str]

    def expire_locks(self) -> None:
        """Expire the lock of a killed command, as a minute of the store's time does."""

    def list_names(self) -> list[str]:
        """Return the names of all stored files."""

    def read_files(self) -> dict[str, bytes]:
        """Return the contents of all stored files, by name."""


@dataclass
class FolderBackend:
    path: Path

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.url = f"file://{self.path}"
        self.environ: dict[str, str] = {}

    def expire_locks(self) -> None:
        """Do nothing: the kernel releases locks with their process."""

    def list_names(self) -> list[str]:
        return [str(file.relative_to(self.path)) for file in self.path.rglob("*")]

    def read_files(self) -> dict[str, bytes]:
        return read_folder(self.path)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below `folder`, by relative path."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@dataclass
class BucketBackend:
    server: BucketServer

    def __post_init__(self) -> None:
        self._name = self.server.create_bucket()
        self.url = build_bucket_url(self._name, self.server.port)
        self.environ = dict(KEYS)
        self._client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.server.port}",
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )

    def expire_locks(self) -> None:
        for key in self._list_keys():
            if key.endswith(".lock") or "/.pulumi/locks/" in key:
                self._client.delete_object(Bucket=self._name, Key=key)

    def list_names(self) -> list[str]:
        return [key.removeprefix("team/state/") for key in self._list_keys()]

    def _list_keys(self) -> list[str]:
        listed = self._client.list_objects_v2(Bucket=self._name)
        return [listed_key["Key"] for listed_key in listed.get("Contents", [])]

    def read_files(self) -> dict[str, bytes]:
        contents = {}
        for key in self._list_keys():
            # A request of a command that was killed may still be on its way.
            with suppress(self._client.exceptions.NoSuchKey):
                answer = self._client.get_object(Bucket=self._name, Key=key)
                contents[key.removeprefix("team/state/")] = answer["Body"].read()
        return contents
