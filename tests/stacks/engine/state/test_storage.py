"""Test the storage interface of the engine in a folder and in buckets."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from processes.limits import LAST_RESORT
from support.servers.azure_server import (
    KEY,
    PROGRAM,
    build_azure_url,
    create_container,
    serve_azure,
)
from support.servers.bucket_server import KEYS as AWS_KEYS
from support.servers.bucket_server import (
    BucketServer,
    Fault,
    Request,
    build_bucket_url,
    serve_proxy,
)

from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.store import Backend, BackendError, Files, HistoryEntry, Storage
from gpuform.stacks.engine.store.addresses import open_storage
from gpuform.stacks.engine.store.storage import ABSENT, ChangedMeanwhile, StorageFailed

KEYS = {**AWS_KEYS, "AZURE_STORAGE_KEY": KEY}
ONCE = {**KEYS, "AWS_MAX_ATTEMPTS": "1"}


AZURE = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="azurite-blob is not installed"),
]


@pytest.fixture(scope="module")
def azure_server() -> Iterator[int]:
    with serve_azure() as port:
        yield port


@pytest.fixture(
    params=[
        "file",
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("azblob", marks=AZURE),
    ]
)
def backend_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}"
    if request.param == "s3":
        server: BucketServer = request.getfixturevalue("bucket_server")
        return build_bucket_url(server.create_bucket(), server.port)
    port: int = request.getfixturevalue("azure_server")
    container = f"c{uuid4().hex}"
    create_container(port, container)
    return build_azure_url(port, container)


@pytest.fixture
def storage(backend_url: str) -> Storage:
    return open_storage(backend_url, KEYS)


@pytest.fixture
def bucket(storage: Storage) -> Storage:
    """Return a storage with conditional writes; skip the test for a folder."""
    if isinstance(storage, Files):
        pytest.skip("files need no conditions")
    return storage


def list_names(storage: Storage, folder: str, after: str = "") -> list[str]:
    return [entry.name for entry in storage.list_entries(folder, after)]


def test_written_data_can_be_read_and_located(storage: Storage) -> None:
    assert storage.read("a/b.json") is None
    storage.write("a/b.json", b"one")
    storage.write("a/b.json", b"two")
    stored_file = storage.read("a/b.json")
    assert stored_file is not None
    assert stored_file.data == b"two"
    assert storage.locate("a/b.json").endswith("/a/b.json")
    assert storage.get_name(storage.locate("a/b.json")) == "a/b.json"
    assert storage.get_name("/somewhere/else") is None


def test_a_listing_is_sorted_and_limited_to_its_folder(storage: Storage) -> None:
    for name in ("a/c.json", "a/b/d.json", "ab.json", "a/b.json"):
        storage.write(name, b"")
    assert list_names(storage, "a") == ["a/b.json", "a/b/d.json", "a/c.json"]
    assert list_names(storage, "a", after="a/b.json") == ["a/b/d.json", "a/c.json"]
    assert list_names(storage, "none") == []


def test_copying_or_deleting_a_missing_file_is_not_an_error(storage: Storage) -> None:
    storage.write("a", b"one")
    assert storage.copy("a", "b/c")
    assert not storage.copy("none", "d")
    storage.delete("a", "none", "b/c")
    storage.delete("none")
    storage.delete()
    assert list_names(storage, "b") == []
    assert storage.read("a") is None
    assert storage.read("d") is None


def test_the_backend_behaves_the_same_on_every_storage(backend_url: str) -> None:
    backend = Backend.open(backend_url, KEYS)
    assert backend.list_stacks() == []
    backend.write("demo", "dev", b'{"version":3}')
    backend.write("demo", "dev", b'{"version":3,"n":2}')
    backend.write("demo", "prod", b"{}")
    assert backend.list_stacks("demo") == ["organization/demo/dev", "organization/demo/prod"]
    backend.create_backup("demo", "dev")
    for kind in ("update", "refresh"):
        backend.open_history("demo", "dev").add(HistoryEntry(kind, "succeeded", 1, 2))
    again = Backend.open(backend_url, KEYS)
    assert again.read("demo", "dev") == b'{"version":3,"n":2}'
    assert [entry.kind for entry in again.open_history("demo", "dev").list_latest()] == [
        "refresh",
        "update",
    ]
    assert [entry.kind for entry in again.open_history("demo", "dev").list_latest(1, 1)] == [
        "update"
    ]
    backup_locations = sorted(
        again.storage.locate(entry.name) for entry in again.list_backups("demo", "dev")
    )
    assert [again.read_backup(where) for where in backup_locations] == [
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
    assert Backend.open(backend_url, KEYS).read("demo", "dev") is None


def test_gzip_is_enabled_by_pulumis_variables(backend_url: str) -> None:
    Backend.open(backend_url, KEYS).write("demo", "dev", b'{"n":1}')
    for number, switch in ((2, "PULUMI_DIY_BACKEND_GZIP"), (3, "PULUMI_SELF_MANAGED_STATE_GZIP")):
        zipping = Backend.open(backend_url, {**KEYS, switch: "1"})
        zipping.write("demo", "dev", b'{"n":%d}' % number)
        stored_file = zipping.storage.read(".pulumi/stacks/demo/dev.json.gz")
        assert stored_file is not None
        assert stored_file.data.startswith(b"\x1f\x8b")
        assert zipping.read("demo", "dev") == b'{"n":%d}' % number
        assert zipping.list_stacks() == ["organization/demo/dev"]
    plain = Backend.open(backend_url, KEYS)
    assert plain.read("demo", "dev") == b'{"n":3}'
    plain.write("demo", "dev", b'{"n":4}')
    assert list_names(plain.storage, ".pulumi/stacks") == [
        ".pulumi/stacks/demo/dev.json.bak",
        ".pulumi/stacks/demo/dev.json.gz",
        ".pulumi/stacks/demo/dev.json.gz.bak",
    ]


@pytest.mark.slow
class TestConditionalWrites:
    def test_a_lease_has_one_owner_at_a_time(self, bucket: Storage) -> None:
        ours, theirs = bucket.create_exclusion("lock"), bucket.create_exclusion("lock")
        assert ours.take() is LockAttempt.TAKEN
        assert theirs.take() is LockAttempt.HELD
        ours.check()
        ours.release()
        assert theirs.take() is LockAttempt.TAKEN
        theirs.release()

    def test_a_version_can_be_replaced_only_once(self, bucket: Storage) -> None:
        first = bucket.write("a", b"1", replacing=ABSENT)
        with pytest.raises(ChangedMeanwhile):
            bucket.write("a", b"2", replacing=ABSENT)
        bucket.write("a", b"3", replacing=first)
        with pytest.raises(ChangedMeanwhile, match="another process changed"):
            bucket.write("a", b"4", replacing=first)
        with pytest.raises(ChangedMeanwhile):
            bucket.write("none", b"5", replacing=first)
        stored_file = bucket.read("a")
        assert stored_file is not None
        assert stored_file.data == b"3"
        bucket.write("a", b"6", replacing=stored_file.version)

    def test_a_checkpoint_written_by_another_process_is_not_overwritten(
        self, bucket_server: BucketServer
    ) -> None:
        backend_url = build_bucket_url(bucket_server.create_bucket(), bucket_server.port)
        ours, theirs = Backend.open(backend_url, KEYS), Backend.open(backend_url, KEYS)
        ours.write("demo", "dev", b'{"n":1}')
        assert theirs.read("demo", "dev") == b'{"n":1}'
        theirs.write("demo", "dev", b'{"n":2}')
        with pytest.raises(ChangedMeanwhile):
            ours.write("demo", "dev", b'{"n":3}')
        assert Backend.open(backend_url, KEYS).read("demo", "dev") == b'{"n":2}'

    def test_a_write_whose_answer_was_lost_is_not_a_conflict(
        self, bucket_server: BucketServer
    ) -> None:
        lost: list[Request] = []

        def once(request: Request) -> Fault | None:
            if request.method != "PUT" or lost:
                return None
            lost.append(request)
            return Fault(0, effect=True)

        with serve_proxy(bucket_server) as front:
            storage = open_storage(
                build_bucket_url(bucket_server.create_bucket(), front.port), KEYS
            )
            front.rule = once
            first = storage.write("a", b"1", replacing=ABSENT)
            lost.clear()
            storage.write("a", b"2", replacing=first)
            assert len(lost) == 1
            stored_file = storage.read("a")
            assert stored_file is not None
            assert stored_file.data == b"2"

    def test_requests_are_not_retried_after_all_retries_of_one_failed(
        self, bucket_server: BucketServer
    ) -> None:
        """A run with an unreachable bucket ends soon, and continues if the bucket answers."""
        with serve_proxy(bucket_server) as front:
            environ = {**KEYS, "AWS_MAX_ATTEMPTS": "3"}
            storage = open_storage(
                build_bucket_url(bucket_server.create_bucket(), front.port), environ
            )
            storage.write("a", b"1")
            front.rule = lambda _request: Fault(503, "SlowDown")
            request_counts = []
            for _ in range(3):
                before = len(front.requests)
                with pytest.raises(StorageFailed):
                    storage.read("a")
                request_counts.append(len(front.requests) - before)
            front.stop_faults()
            assert storage.read("a") is not None
        assert request_counts == [3, 1, 1]


@pytest.mark.slow
class TestErrors:
    @pytest.mark.parametrize(
        ("fault", "expected_message", "hint"),
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
    def test_each_failure_is_an_error_with_a_hint(
        self, bucket_server: BucketServer, fault: Fault, expected_message: str, hint: str
    ) -> None:
        with serve_proxy(bucket_server) as front:
            storage = open_storage(
                build_bucket_url(bucket_server.create_bucket(), front.port), ONCE
            )
            front.rule = lambda _request: fault
            calls: list[Callable[[], Any]] = [
                lambda: storage.read("a"),
                lambda: storage.write("a", b"", replacing=ABSENT),
                lambda: storage.copy("a", "b"),
                lambda: storage.delete("a", "b"),
                lambda: storage.list_entries("a"),
            ]
            for call in calls:
                with pytest.raises(StorageFailed, match=expected_message) as caught:
                    call()
                assert hint in caught.value.hint
                assert "s3://b-" in str(caught.value)
                assert "127.0.0.1" not in str(caught.value)


class TestAddresses:
    @pytest.mark.parametrize(
        ("address", "expected_message", "hint"),
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
    def test_an_invalid_backend_url_is_an_error_with_a_hint(
        self, address: str, expected_message: str, hint: str
    ) -> None:
        with pytest.raises(BackendError, match=expected_message) as caught:
            open_storage(address, KEYS)
        assert hint in caught.value.hint
        assert "hush" not in str(caught.value)

    def test_pulumis_url_parameters_are_accepted(self) -> None:
        parameters = (
            "region=eu-central-1&awssdk=v2&endpoint=minio:9000&disableSSL=true&s3ForcePathStyle=1"
            "&ssetype=aws:kms&kmskeyid=k&hostname_immutable=true&prefix=deep/"
        )
        opened = open_storage(f"s3://bucket/team?{parameters}", KEYS)
        assert opened.locate("x") == "s3://bucket/team/deep/x"

    @pytest.mark.slow
    def test_aws_profiles_are_read_as_by_the_aws_cli(
        self, tmp_path: Path, monkeypatch: Any
    ) -> None:
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
        for profile, expected_message in (("none", "could not be found"), ("old", "SSO")):
            with pytest.raises(BackendError, match=expected_message) as caught:
                open_storage(f"s3://bucket?profile={profile}", {})
            assert "aws sso login" in caught.value.hint

    def test_a_missing_cloud_extra_is_an_error_with_the_install_command(self) -> None:
        program = (
            "import sys\n"
            "sys.modules['obstore'] = None\n"
            "from gpuform.stacks.engine.store.storage import BackendError\n"
            "from gpuform.stacks.engine.store.addresses import open_storage\n"
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

    def test_a_file_backend_imports_no_bucket_library(self, tmp_path: Path) -> None:
        program = (
            "import sys\n"
            "from gpuform.stacks.engine.store.backend import Backend\n"
            "Backend.open(sys.argv[1]).list_stacks()\n"
            "found = {'obstore', 'botocore'} & set(sys.modules)\n"
            "assert not found, found\n"
        )
        command = [sys.executable, "-c", program, f"file://{tmp_path}"]
        subprocess.run(command, check=True, timeout=LAST_RESORT)
