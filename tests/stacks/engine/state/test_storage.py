"""What the engine relies on, in a folder and in a bucket."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure_server import KEY, PROGRAM, azure_url, make_container, serving_azure
from bucket_server import KEYS as AWS_KEYS
from bucket_server import BucketServer, Fault, Request, proxy, url
from processes.limits import LAST_RESORT

from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.store import Backend, BackendError, Files, HistoryEntry, Storage
from gpuform.stacks.engine.store.storage.addresses import open_storage
from gpuform.stacks.engine.store.storage.protocol import ABSENT, ChangedMeanwhile, StorageFailed

KEYS = {**AWS_KEYS, "AZURE_STORAGE_KEY": KEY}
ONCE = {**KEYS, "AWS_MAX_ATTEMPTS": "1"}


AZURE = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="azurite-blob is not installed"),
]


@pytest.fixture(scope="module")
def azure_server() -> Iterator[int]:
    with serving_azure() as port:
        yield port


@pytest.fixture(
    params=[
        "file",
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("azblob", marks=AZURE),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}"
    if request.param == "s3":
        server: BucketServer = request.getfixturevalue("bucket_server")
        return url(server.bucket(), server.port)
    port: int = request.getfixturevalue("azure_server")
    container = f"c{uuid4().hex}"
    make_container(port, container)
    return azure_url(port, container)


@pytest.fixture
def storage(place: str) -> Storage:
    return open_storage(place, KEYS)


@pytest.fixture
def bucket(storage: Storage) -> Storage:
    """A storage that honours conditions."""
    if isinstance(storage, Files):
        pytest.skip("files need no conditions")
    return storage


def names(storage: Storage, folder: str, after: str = "") -> list[str]:
    return [entry.name for entry in storage.list_entries(folder, after)]


def test_what_is_written_is_read(storage: Storage) -> None:
    assert storage.read("a/b.json") is None
    storage.write("a/b.json", b"one")
    storage.write("a/b.json", b"two")
    found = storage.read("a/b.json")
    assert found is not None
    assert found.data == b"two"
    assert storage.locate("a/b.json").endswith("/a/b.json")
    assert storage.get_name(storage.locate("a/b.json")) == "a/b.json"
    assert storage.get_name("/somewhere/else") is None


def test_entries_are_sorted_and_those_of_a_folder_only(storage: Storage) -> None:
    for name in ("a/c.json", "a/b/d.json", "ab.json", "a/b.json"):
        storage.write(name, b"")
    assert names(storage, "a") == ["a/b.json", "a/b/d.json", "a/c.json"]
    assert names(storage, "a", after="a/b.json") == ["a/b/d.json", "a/c.json"]
    assert names(storage, "none") == []


def test_copying_and_removing_what_is_not_there_is_no_error(storage: Storage) -> None:
    storage.write("a", b"one")
    assert storage.copy("a", "b/c")
    assert not storage.copy("none", "d")
    storage.delete("a", "none", "b/c")
    storage.delete("none")
    storage.delete()
    assert names(storage, "b") == []
    assert storage.read("a") is None
    assert storage.read("d") is None


def test_the_backend_is_the_same(place: str) -> None:
    backend = Backend.open(place, KEYS)
    assert backend.list_stacks() == []
    backend.write("demo", "dev", b'{"version":3}')
    backend.write("demo", "dev", b'{"version":3,"n":2}')
    backend.write("demo", "prod", b"{}")
    assert backend.list_stacks("demo") == ["organization/demo/dev", "organization/demo/prod"]
    backend.create_backup("demo", "dev")
    for kind in ("update", "refresh"):
        backend.open_history("demo", "dev").add(HistoryEntry(kind, "succeeded", 1, 2))
    again = Backend.open(place, KEYS)
    assert again.read("demo", "dev") == b'{"version":3,"n":2}'
    assert [entry.kind for entry in again.open_history("demo", "dev").list_latest()] == [
        "refresh",
        "update",
    ]
    assert [entry.kind for entry in again.open_history("demo", "dev").list_latest(1, 1)] == [
        "update"
    ]
    kept = sorted(again.storage.locate(entry.name) for entry in again.list_backups("demo", "dev"))
    assert [again.read_backup(where) for where in kept] == [
        b'{"version":3,"n":2}',
        b'{"version":3}',
    ]
    again.move_side_files(("demo", "dev"), ("demo", "test"))
    assert [entry.kind for entry in again.open_history("demo", "test").list_latest()] == [
        "refresh",
        "update",
    ]
    again.remove("demo", "dev")
    assert again.list_stacks() == ["organization/demo/prod"]
    assert Backend.open(place, KEYS).read("demo", "dev") is None


def test_gzip_as_pulumi_has_it(place: str) -> None:
    Backend.open(place, KEYS).write("demo", "dev", b'{"n":1}')
    for number, switch in ((2, "PULUMI_DIY_BACKEND_GZIP"), (3, "PULUMI_SELF_MANAGED_STATE_GZIP")):
        zipping = Backend.open(place, {**KEYS, switch: "1"})
        zipping.write("demo", "dev", b'{"n":%d}' % number)
        found = zipping.storage.read(".pulumi/stacks/demo/dev.json.gz")
        assert found is not None
        assert found.data.startswith(b"\x1f\x8b")
        assert zipping.read("demo", "dev") == b'{"n":%d}' % number
        assert zipping.list_stacks() == ["organization/demo/dev"]
    plain = Backend.open(place, KEYS)
    assert plain.read("demo", "dev") == b'{"n":3}'
    plain.write("demo", "dev", b'{"n":4}')
    assert names(plain.storage, ".pulumi/stacks") == [
        ".pulumi/stacks/demo/dev.json.bak",
        ".pulumi/stacks/demo/dev.json.gz",
        ".pulumi/stacks/demo/dev.json.gz.bak",
    ]


@pytest.mark.slow
class TestConditions:
    def test_a_lease_has_one_owner(self, bucket: Storage) -> None:
        ours, theirs = bucket.create_exclusion("lock"), bucket.create_exclusion("lock")
        assert ours.take() is LockAttempt.TAKEN
        assert theirs.take() is LockAttempt.HELD
        ours.check()
        ours.release()
        assert theirs.take() is LockAttempt.TAKEN
        theirs.release()

    def test_a_version_is_replaced_once(self, bucket: Storage) -> None:
        first = bucket.write("a", b"1", replacing=ABSENT)
        with pytest.raises(ChangedMeanwhile):
            bucket.write("a", b"2", replacing=ABSENT)
        bucket.write("a", b"3", replacing=first)
        with pytest.raises(ChangedMeanwhile, match="another process changed"):
            bucket.write("a", b"4", replacing=first)
        with pytest.raises(ChangedMeanwhile):
            bucket.write("none", b"5", replacing=first)
        found = bucket.read("a")
        assert found is not None
        assert found.data == b"3"
        bucket.write("a", b"6", replacing=found.version)

    def test_a_checkpoint_that_another_has_written_is_not_written_over(
        self, bucket_server: BucketServer
    ) -> None:
        place = url(bucket_server.bucket(), bucket_server.port)
        ours, theirs = Backend.open(place, KEYS), Backend.open(place, KEYS)
        ours.write("demo", "dev", b'{"n":1}')
        assert theirs.read("demo", "dev") == b'{"n":1}'
        theirs.write("demo", "dev", b'{"n":2}')
        with pytest.raises(ChangedMeanwhile):
            ours.write("demo", "dev", b'{"n":3}')
        assert Backend.open(place, KEYS).read("demo", "dev") == b'{"n":2}'

    def test_a_lost_answer_is_not_taken_for_another_writer(
        self, bucket_server: BucketServer
    ) -> None:
        lost: list[Request] = []

        def once(request: Request) -> Fault | None:
            if request.method != "PUT" or lost:
                return None
            lost.append(request)
            return Fault(0, effect=True)

        with proxy(bucket_server) as front:
            storage = open_storage(url(bucket_server.bucket(), front.port), KEYS)
            front.rule = once
            first = storage.write("a", b"1", replacing=ABSENT)
            lost.clear()
            storage.write("a", b"2", replacing=first)
            assert len(lost) == 1
            found = storage.read("a")
            assert found is not None
            assert found.data == b"2"

    def test_when_no_try_helped_nothing_is_tried_again(self, bucket_server: BucketServer) -> None:
        """A run whose store is gone ends soon; it goes on where the store comes back."""
        with proxy(bucket_server) as front:
            environ = {**KEYS, "AWS_MAX_ATTEMPTS": "3"}
            storage = open_storage(url(bucket_server.bucket(), front.port), environ)
            storage.write("a", b"1")
            front.rule = lambda _request: Fault(503, "SlowDown")
            seen = []
            for _ in range(3):
                before = len(front.seen)
                with pytest.raises(StorageFailed):
                    storage.read("a")
                seen.append(len(front.seen) - before)
            front.heal()
            assert storage.read("a") is not None
        assert seen == [3, 1, 1]


@pytest.mark.slow
class TestErrors:
    @pytest.mark.parametrize(
        ("fault", "said", "hint"),
        [
            (Fault(403, "AccessDenied"), "AccessDenied: injected", "credentials"),
            (Fault(400, "ExpiredToken"), "ExpiredToken: injected", "aws sso login"),
            (Fault(404, "NoSuchBucket"), "the bucket of .* does not exist", "endpoint"),
            (Fault(301, "PermanentRedirect"), "region", "in another region"),
            (Fault(503, "SlowDown"), "SlowDown: injected", "network"),
            (Fault(0), "cannot be", "network"),
        ],
        ids=lambda value: value.code if isinstance(value, Fault) else "",
    )
    def test_each_is_told_with_what_to_do(
        self, bucket_server: BucketServer, fault: Fault, said: str, hint: str
    ) -> None:
        with proxy(bucket_server) as front:
            storage = open_storage(url(bucket_server.bucket(), front.port), ONCE)
            front.rule = lambda _request: fault
            calls: list[Callable[[], Any]] = [
                lambda: storage.read("a"),
                lambda: storage.write("a", b"", replacing=ABSENT),
                lambda: storage.copy("a", "b"),
                lambda: storage.delete("a", "b"),
                lambda: storage.list_entries("a"),
            ]
            for call in calls:
                with pytest.raises(StorageFailed, match=said) as caught:
                    call()
                assert hint in caught.value.hint
                assert "s3://b-" in str(caught.value)
                assert "127.0.0.1" not in str(caught.value)


class TestAddresses:
    @pytest.mark.parametrize(
        ("address", "said", "hint"),
        [
            ("s3://bucket?regoin=x", "unknown parameter: regoin", "Did you mean region"),
            ("s3://bucket?s3ForcePathStyle=perhaps", "s3ForcePathStyle=perhaps", "true or false"),
            ("s3:///prefix", "has no bucket", "s3://BUCKET"),
            ("s3://key:hush@bucket", "has no bucket", "Credentials do not belong"),
            ("azblob://box", "no storage account", "AZURE_STORAGE_ACCOUNT"),
            ("azblob://box?account=x", "unknown parameter: account", "storage_account"),
            ("gs://bucket?region=x", "unknown parameter: region", "anonymous"),
            ("ftp://host", "gpuform does not support the backend", "s3://BUCKET"),
        ],
    )
    def test_what_cannot_be_used_is_told(self, address: str, said: str, hint: str) -> None:
        with pytest.raises(BackendError, match=said) as caught:
            open_storage(address, KEYS)
        assert hint in caught.value.hint
        assert "hush" not in str(caught.value)

    def test_pulumis_parameters_are_taken(self) -> None:
        parameters = (
            "region=eu-central-1&awssdk=v2&endpoint=minio:9000&disableSSL=true&s3ForcePathStyle=1"
            "&ssetype=aws:kms&kmskeyid=k&hostname_immutable=true&prefix=deep/"
        )
        opened = open_storage(f"s3://bucket/team?{parameters}", KEYS)
        assert opened.locate("x") == "s3://bucket/team/deep/x"

    @pytest.mark.slow
    def test_profiles_are_read_as_by_awss_tools(self, tmp_path: Path, monkeypatch: Any) -> None:
        keys = {"Version": 1, "AccessKeyId": "made", "SecretAccessKey": "up"}
        (tmp_path / "keys.json").write_text(json.dumps(keys))
        (tmp_path / "config").write_text(
            f"[profile team]\nregion = eu-west-1\ncredential_process = cat {tmp_path}/keys.json\n"
            "[profile old]\nsso_start_url = https://example.org\nsso_region = eu-west-1\n"
            "sso_account_id = 1\nsso_role_name = r\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        open_storage("s3://bucket?profile=team", {})
        for profile, said in (("none", "could not be found"), ("old", "SSO")):
            with pytest.raises(BackendError, match=said) as caught:
                open_storage(f"s3://bucket?profile={profile}", {})
            assert "aws sso login" in caught.value.hint

    def test_the_extra_is_named_when_it_is_missing(self) -> None:
        program = (
            "import sys\n"
            "sys.modules['obstore'] = None\n"
            "from gpuform.stacks.engine.store.backend_files import BackendError\n"
            "from gpuform.stacks.engine.store.storage.addresses import open_storage\n"
            "for scheme in ('s3', 'gs', 'azblob'):\n"
            "    try:\n"
            "        open_storage(f'{scheme}://bucket?secret=hush', {})\n"
            "    except BackendError as error:\n"
            "        print(error.message, error.hint)\n"
        )
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, check=True, timeout=LAST_RESORT, capture_output=True, text=True
        )
        lines = done.stdout.splitlines()
        assert len(lines) == 3
        assert all("requires the package obstore" in line for line in lines)
        assert all("pip install '" in line and "[cloud]'" in line for line in lines)
        assert "hush" not in done.stdout

    def test_a_folder_needs_nothing_of_a_bucket(self, tmp_path: Path) -> None:
        program = (
            "import sys\n"
            "from gpuform.stacks.engine.store.backend import Backend\n"
            "Backend.open(sys.argv[1]).list_stacks()\n"
            "found = {'obstore', 'botocore'} & set(sys.modules)\n"
            "assert not found, found\n"
        )
        command = [sys.executable, "-c", program, f"file://{tmp_path}"]
        subprocess.run(command, check=True, timeout=LAST_RESORT)
