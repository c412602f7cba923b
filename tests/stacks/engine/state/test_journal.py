"""Test that a journal, truncated anywhere, brings any checkpoint of its run up to date."""

import json
from dataclasses import replace

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import EventBus
from gpuform.stacks.engine.state import FileLog, Journal, JournalError, Snapshot, edits, journal

BEFORE = """
a = Machine('a', size=1)
b = Machine('b', rack=a.address, opts=ResourceOptions(depends_on=[a]))
c = Machine('c', slot='x')
d = Machine('d', size=c.address, opts=ResourceOptions(parent=c))
Machine('e', rack='x', opts=ResourceOptions(additional_secret_outputs=['size']))
Machine('g', size=pulumi.Output.secret(3))
Machine('gone', size=1)
pulumi.export('address', a.address)
"""
AFTER = """
a = Machine('a', size=2)
b = Machine('b', rack=a.address, opts=ResourceOptions(depends_on=[a]))
c = Machine('c', slot='y')
d = Machine('d', size=c.address, opts=ResourceOptions(parent=c))
Machine('e', rack='y', opts=ResourceOptions(additional_secret_outputs=['size']))
Machine('f', size=pulumi.Output.secret(2))
Machine('g2', size=pulumi.Output.secret(3), opts=ResourceOptions(
    aliases=[pulumi.Alias(name='g')]))
pulumi.export('address', d.address)
"""


class PersistentJournal(Journal):
    """A journal that stays when its run has ended without errors."""

    __slots__ = ()

    def end(self) -> None:
        self.log.close()


@pytest.fixture
def interrupted(lab, tmp_path):
    """Return a function that runs a program and returns journal, checkpoints and outcome."""

    def run(operation, before=BEFORE, after=AFTER, **options):
        lab.up(before)
        if operation == "refresh":
            lab.change_platform_object("m-1", {"size": 7})
            lab.change_platform_object("m-3", None)
        (lab.directory / "__main__.py").write_text(
            (lab.directory / "__main__.py").read_text().split("from lab")[0]
            + "from lab import Machine\n"
            + after
        )
        first = lab.snapshot.to_json(lab.crypter)
        written = [first]
        run_journal = PersistentJournal(
            FileLog(tmp_path / "dev.journal"), journal.compute_digest(first)
        )
        subject = replace(lab.subject(), write=written.append, journal=run_journal)
        subject = replace(subject, snapshot=Snapshot.from_json(first, lab.crypter))
        deployment = Deployment(subject, Options(operation, preview=False, **options), EventBus())
        outcome = deployment.run()
        return tmp_path / "dev.journal", written, outcome

    return run


def list_entries(snapshot):
    """Return the resources and pending operations of a snapshot, without the time."""
    document = json.loads(snapshot.to_json(None, show_secrets=True))
    latest = document["checkpoint"]["latest"]
    return latest.get("resources"), latest.get("pending_operations")


def recover_snapshot(path, data, crypter):
    snapshot = Snapshot.from_json(data, crypter)
    return journal.recover(FileLog(path), data, snapshot, crypter).snapshot


def read_orphaned_journal(path, data, crypter):
    """Return the only journal at `path` as orphaned: its base is not the checkpoint `data`."""
    (orphaned_journal,) = journal.recover(
        FileLog(path), data, Snapshot.from_json(data, crypter), crypter
    ).orphaned_journals
    return orphaned_journal


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["update", "refresh", "destroy"])
@pytest.mark.parametrize("parallel", [1, 16])
def test_recovery_from_any_checkpoint_of_a_run_gives_its_final_state(
    interrupted, lab, operation, parallel
):
    path, written, outcome = interrupted(operation, parallel=parallel)
    assert outcome.succeeded
    for data in written:
        assert list_entries(recover_snapshot(path, data, lab.crypter)) == list_entries(
            outcome.snapshot
        )


@pytest.mark.parametrize("operation", ["update", "refresh", "destroy"])
def test_a_journal_truncated_anywhere_recovers_to_a_valid_state(interrupted, lab, operation):
    path, written, _ = interrupted(operation, parallel=4)
    complete_journal = path.read_bytes()
    ends = [position + 1 for position, byte in enumerate(complete_journal) if byte == ord("\n")]
    resource_counts = set()
    for end in ends:
        for cut in (end, end - 1, end - 20):
            path.write_bytes(complete_journal[:cut])
            state = recover_snapshot(path, written[0], lab.crypter)
            assert edits.verify(state) == []
        path.write_bytes(complete_journal[:end])
        resource_counts.add(len(recover_snapshot(path, written[0], lab.crypter).resources))
    assert len(resource_counts) > 1


def test_the_journal_of_a_failed_run_recovers_to_its_final_state(interrupted, lab):
    after = "a = Machine('a', size=2)\nMachine('x', refuse='create', size=a.size)\n"
    path, written, outcome = interrupted("update", after=after)
    assert not outcome.succeeded
    assert list_entries(recover_snapshot(path, written[0], lab.crypter)) == list_entries(
        outcome.snapshot
    )


def test_a_journal_contains_no_plaintext_secrets(interrupted):
    after = "Machine('s', size=pulumi.Output.secret('hush-hush'))"
    path, _, outcome = interrupted("update", after=after)
    assert outcome.succeeded
    assert path.exists()
    assert b"hush-hush" not in path.read_bytes()


def test_a_run_without_changes_writes_no_journal(interrupted):
    path, written, outcome = interrupted("update", after=BEFORE)
    assert outcome.succeeded
    assert len(written) == 1
    assert not path.exists()


def test_a_journal_of_another_version_is_an_error_and_is_kept(interrupted, lab):
    path, written, _ = interrupted("update")
    head, _, rest = path.read_bytes().partition(b"\n")
    header = head.partition(b" ")[2].replace(b'"gpuform-journal":1', b'"gpuform-journal":2')
    path.write_bytes(journal.encode_line(header) + rest)
    before = path.read_bytes()
    with pytest.raises(JournalError, match="version") as caught:
        recover_snapshot(path, written[0], lab.crypter)
    assert "gpuform state repair --discard-journal" in (caught.value.hint or "")
    assert path.read_bytes() == before


def test_an_orphaned_journal_reports_the_objects_that_only_the_journal_has(interrupted, lab):
    """Truncate the journal after each line: only objects in no checkpoint are reported."""
    path, _, _ = interrupted("update", parallel=4)
    complete_journal = path.read_bytes()
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)
    lines = complete_journal.splitlines(keepends=True)
    records = [json.loads(line.partition(b" ")[2]) for line in lines]
    unsure = 0
    for end in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:end]))
        orphaned_journal = read_orphaned_journal(path, other, lab.crypter)
        ops = [record.get("op") for record in records[:end]]
        start = max((n for n in range(end - 1) if ops[n] == "checkpoint"), default=0)
        ids = [(record.get("resource") or {}).get("id") for record in records[:end]]
        new = {entry.id for entry in orphaned_journal.created}
        assert new <= {*ids[start:]} - {*ids[:start]}
        removed = {r["old"] for r in records[:end] if r.get("op") == "remove"}
        adds = [r for r in records[start:end] if r.get("op") == "add" and r["new"] not in removed]
        assert new >= {r["resource"]["id"] for r in adds if r["resource"].get("id")}
        assert orphaned_journal.is_sure == (ops[-1] != "checkpoint")
        unsure += not orphaned_journal.is_sure
    assert unsure


def test_an_orphaned_journal_reports_unfinished_creates(interrupted, lab):
    path, _, _ = interrupted("update", parallel=1)
    lines = path.read_bytes().splitlines(keepends=True)
    begun = [n for n, line in enumerate(lines) if b'"op":"begin"' in line and b'"creating"' in line]
    path.write_bytes(b"".join(lines[: begun[0] + 1]))
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)
    (create,) = read_orphaned_journal(path, other, lab.crypter).unfinished_creates
    assert create.urn in lines[begun[0]].decode()


def test_objects_of_an_unwritten_checkpoint_are_reported_by_an_orphaned_journal(interrupted, lab):
    path, _, _ = interrupted("update", parallel=1)
    head, *lines = path.read_bytes().splitlines(keepends=True)
    adds = [n for n, line in enumerate(lines) if b'"op":"add"' in line and b'"id":"m-' in line]
    after = next(n for n in range(adds[0], len(lines)) if b'"op":"checkpoint"' in lines[n])
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)
    for op, is_reported in (("unwritten", True), ("begun-anything", False)):
        following = journal.Record(op).encode()
        path.write_bytes(b"".join([head, *lines[: after + 1], following]))
        assert bool(read_orphaned_journal(path, other, lab.crypter).created) == is_reported


def test_objects_of_a_run_whose_checkpoint_write_failed_are_in_the_journal(lab, tmp_path):
    path = tmp_path / "dev.journal"
    first = lab.snapshot.to_json(lab.crypter)
    written = []

    def write(data: bytes) -> None:
        if written:
            raise EngineError("no room")
        written.append(data)

    run_journal = Journal(FileLog(path), journal.compute_digest(first))
    subject = replace(lab.subject(), journal=run_journal, write=write)
    (lab.directory / "__main__.py").write_text(
        "from lab import Machine\na = Machine('a')\nb = Machine('b', size=a.size)\n"
    )
    with pytest.raises(EngineError, match="no room"):
        Deployment(subject, Options("update", preview=False), EventBus()).run()
    ids = {entry.id for entry in read_orphaned_journal(path, first + b" ", lab.crypter).created}
    assert ids == set(lab.platform_objects)
    assert ids


def test_a_journal_with_secrets_of_another_key_is_an_error(interrupted, lab):
    path, _, _ = interrupted("update", after="Machine('s', size=pulumi.Output.secret('hush'))")
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)

    class OtherCrypter:
        def decrypt(self, ciphertext: str) -> str:
            raise EngineError(f"cannot open {len(ciphertext)} characters")

    with pytest.raises(JournalError, match=r"contains secrets.*cannot open") as caught:
        journal.recover(
            FileLog(path), other, Snapshot.from_json(other, lab.crypter), OtherCrypter()
        )
    assert "--discard-journal" in (caught.value.hint or "")


def test_an_orphaned_journal_without_new_objects_changes_nothing(interrupted, lab):
    path, _, outcome = interrupted("update")
    other = outcome.snapshot.to_json(lab.crypter)
    assert list_entries(recover_snapshot(path, other, lab.crypter)) == list_entries(
        outcome.snapshot
    )
    assert read_orphaned_journal(path, other, lab.crypter).find_lost_objects(outcome.snapshot) == []


def test_a_journal_record_that_contradicts_the_state_is_an_error(interrupted, lab):
    path, written, _ = interrupted("update")
    head = path.read_bytes().partition(b"\n")[0] + b"\n"
    path.write_bytes(head + journal.Record("remove", {"old": 99}).encode())
    with pytest.raises(JournalError, match="damaged"):
        recover_snapshot(path, written[0], lab.crypter)


def test_a_missing_journal_recovers_nothing(tmp_path, lab):
    data = Snapshot("organization/lab/dev").to_json(lab.crypter)
    snapshot = Snapshot.from_json(data, lab.crypter)
    recovered_state = journal.recover(FileLog(tmp_path / "none"), data, snapshot, lab.crypter)
    assert recovered_state == journal.RecoveredState(snapshot)


def test_a_run_stops_before_any_create_when_its_journal_cannot_be_written(lab, tmp_path):
    (tmp_path / "file").touch()
    first = lab.snapshot.to_json(lab.crypter)
    run_journal = Journal(FileLog(tmp_path / "file" / "dev.journal"), journal.compute_digest(first))
    subject = replace(lab.subject(), journal=run_journal)
    (lab.directory / "__main__.py").write_text("from lab import Machine\nMachine('a')\n")
    with pytest.raises(EngineError, match=r"dev\.journal cannot be written"):
        Deployment(subject, Options("update", preview=False), EventBus()).run()
    assert lab.platform_objects == {}


def test_recovery_uses_the_run_whose_base_is_the_checkpoint(interrupted, lab):
    """Runs that got a bucket's lock too late may leave journals without records."""
    path, written, outcome = interrupted("update")
    complete_journal = path.read_bytes()
    head = {"gpuform-journal": journal.VERSION}
    for base in (journal.compute_digest(written[0]), "of another checkpoint"):
        stray = journal.encode_line(json.dumps({**head, "base": base}).encode())
        for both in (stray + complete_journal, complete_journal + stray):
            path.write_bytes(both)
            assert list_entries(recover_snapshot(path, written[0], lab.crypter)) == list_entries(
                outcome.snapshot
            )


def test_each_orphaned_journal_of_several_runs_is_reported(interrupted, lab):
    path, written, outcome = interrupted("update")
    urn = b"urn:pulumi:dev::lab::t::n"
    lost = journal.Record(
        "add",
        {"new": 1},
        {"resource": b'{"urn":"%s","custom":true,"type":"t","id":"m-lost"}' % urn},
    )
    stray = journal.encode_line(b'{"gpuform-journal":1,"base":"another"}') + lost.encode()
    path.write_bytes(path.read_bytes() + stray + stray)
    snapshot = Snapshot.from_json(written[0], lab.crypter)
    recovered_state = journal.recover(FileLog(path), written[0], snapshot, lab.crypter)
    assert list_entries(recovered_state.snapshot) == list_entries(outcome.snapshot)
    assert [
        [e.id for e in orphaned_journal.find_lost_objects(recovered_state.snapshot)]
        for orphaned_journal in recovered_state.orphaned_journals
    ] == [["m-lost"]] * 2
