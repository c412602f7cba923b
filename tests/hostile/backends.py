"""Where a course keeps its state: a folder or a bucket, read by name."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import boto3
from bucket_server import KEYS, BucketServer, url


class Backend(Protocol):
    url: str
    environ: dict[str, str]

    def end_locks(self) -> None:
        """What happens after a minute of the store's own time: a killed command's lock is over."""

    def files(self) -> dict[str, bytes]: ...


@dataclass
class Folder:
    place: Path

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True)
        self.url = f"file://{self.place}"
        self.environ: dict[str, str] = {}

    def end_locks(self) -> None:
        """The kernel ends them with their process."""

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.place.rglob("*") if path.is_file())
        return {str(path.relative_to(self.place)): path.read_bytes() for path in found}


@dataclass
class Bucket:
    server: BucketServer

    def __post_init__(self) -> None:
        self._name = self.server.bucket()
        self.url = url(self._name, self.server.port)
        self.environ = dict(KEYS)
        self._client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.server.port}",
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )

    def end_locks(self) -> None:
        for key in self._keys():
            if key.endswith(".lock") or "/.pulumi/locks/" in key:
                self._client.delete_object(Bucket=self._name, Key=key)

    def _keys(self) -> list[str]:
        listed = self._client.list_objects_v2(Bucket=self._name)
        return [each["Key"] for each in listed.get("Contents", [])]

    def files(self) -> dict[str, bytes]:
        found = {}
        for key in self._keys():
            # A request of a command that was killed may still be on its way.
            with suppress(self._client.exceptions.NoSuchKey):
                answer = self._client.get_object(Bucket=self._name, Key=key)
                found[key.removeprefix("team/state/")] = answer["Body"].read()
        return found
