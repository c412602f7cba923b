"""A journal brings any checkpoint of its run up to date, whatever a crash has cut off."""

import json
from dataclasses import replace

import pytest

from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.errors import EngineError
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


class KeptJournal(Journal):
    """One that stays when the run has ended well."""

    __slots__ = ()

    def end(self) -> None:
        self.log.close()


@pytest.fixture
def interrupted(lab, tmp_path):
    """Runs a program on what another left: the journal, all checkpoints, the state at the end."""

    def run(operation, before=BEFORE, after=AFTER, **options):
        lab.up(before)
        if operation == "refresh":
            lab.change_world("m-1", {"size": 7})
            lab.change_world("m-3", None)
        (lab.directory / "__main__.py").write_text(
            (lab.directory / "__main__.py").read_text().split("from lab")[0]
            + "from lab import Machine\n"
            + after
        )
        first = lab.snapshot.to_json(lab.crypter)
        written = [first]
        kept = KeptJournal(FileLog(tmp_path / "dev.journal"), journal.compute_digest(first))
        subject = replace(lab.subject(), write=written.append, journal=kept)
        subject = replace(subject, snapshot=Snapshot.from_json(first, lab.crypter))
        deployment = Deployment(subject, Options(operation, preview=False, **options), EventBus())
        outcome = deployment.run()
        return tmp_path / "dev.journal", written, outcome

    return run


def entries(snapshot):
    """What a state says, without its time."""
    document = json.loads(snapshot.to_json(None, show_secrets=True))
    latest = document["checkpoint"]["latest"]
    return latest.get("resources"), latest.get("pending_operations")


def recovered(path, data, crypter):
    snapshot = Snapshot.from_json(data, crypter)
    return journal.recover(FileLog(path), data, snapshot, crypter).snapshot


def overtaken(path, data, crypter):
    """What the only journal at a path tells beside a state that does not fit it."""
    (told,) = journal.recover(
        FileLog(path), data, Snapshot.from_json(data, crypter), crypter
    ).orphaned_journals
    return told


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["update", "refresh", "destroy"])
@pytest.mark.parametrize("parallel", [1, 16])
def test_every_checkpoint_of_a_run_leads_to_its_end(interrupted, lab, operation, parallel):
    path, written, outcome = interrupted(operation, parallel=parallel)
    assert outcome.succeeded
    for data in written:
        assert entries(recovered(path, data, lab.crypter)) == entries(outcome.snapshot)


@pytest.mark.parametrize("operation", ["update", "refresh", "destroy"])
def test_a_journal_cut_off_anywhere_leads_to_a_sound_state(interrupted, lab, operation):
    path, written, _ = interrupted(operation, parallel=4)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    known = set()
    for end in ends:
        for cut in (end, end - 1, end - 20):
            path.write_bytes(whole[:cut])
            state = recovered(path, written[0], lab.crypter)
            assert edits.verify(state) == []
        path.write_bytes(whole[:end])
        known.add(len(recovered(path, written[0], lab.crypter).resources))
    assert len(known) > 1


def test_a_failing_run_is_recovered_with_what_failed(interrupted, lab):
    after = "a = Machine('a', size=2)\nMachine('x', refuse='create', size=a.size)\n"
    path, written, outcome = interrupted("update", after=after)
    assert not outcome.succeeded
    assert entries(recovered(path, written[0], lab.crypter)) == entries(outcome.snapshot)


def test_no_secret_is_in_a_journal_in_the_clear(interrupted):
    after = "Machine('s', size=pulumi.Output.secret('hush-hush'))"
    path, _, outcome = interrupted("update", after=after)
    assert outcome.succeeded
    assert path.exists()
    assert b"hush-hush" not in path.read_bytes()


def test_a_run_without_changes_keeps_no_journal(interrupted):
    path, written, outcome = interrupted("update", after=BEFORE)
    assert outcome.succeeded
    assert len(written) == 1
    assert not path.exists()


def test_a_journal_of_another_version_is_refused_and_stays(interrupted, lab):
    path, written, _ = interrupted("update")
    head, _, rest = path.read_bytes().partition(b"\n")
    text = head.partition(b" ")[2].replace(b'"gpuform-journal":1', b'"gpuform-journal":2')
    path.write_bytes(journal.encode_line(text) + rest)
    before = path.read_bytes()
    with pytest.raises(JournalError, match="version") as told:
        recovered(path, written[0], lab.crypter)
    assert "gpuform state repair --discard-journal" in (told.value.hint or "")
    assert path.read_bytes() == before


def test_a_journal_that_another_program_has_overtaken_tells_what_only_it_knows(interrupted, lab):
    """Cut off anywhere: what is in a checkpoint that was written the other program knew."""
    path, _, _ = interrupted("update", parallel=4)
    whole = path.read_bytes()
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)
    lines = whole.splitlines(keepends=True)
    records = [json.loads(line.partition(b" ")[2]) for line in lines]
    unsure = 0
    for end in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:end]))
        told = overtaken(path, other, lab.crypter)
        ops = [record.get("op") for record in records[:end]]
        start = max((n for n in range(end - 1) if ops[n] == "checkpoint"), default=0)
        ids = [(record.get("resource") or {}).get("id") for record in records[:end]]
        new = {entry.id for entry in told.created}
        assert new <= {*ids[start:]} - {*ids[:start]}
        removed = {r["old"] for r in records[:end] if r.get("op") == "remove"}
        adds = [r for r in records[start:end] if r.get("op") == "add" and r["new"] not in removed]
        assert new >= {r["resource"]["id"] for r in adds if r["resource"].get("id")}
        assert told.is_sure == (ops[-1] != "checkpoint")
        unsure += not told.is_sure
    assert unsure


def test_creates_without_an_end_are_told_of_an_overtaken_journal(interrupted, lab):
    path, _, _ = interrupted("update", parallel=1)
    lines = path.read_bytes().splitlines(keepends=True)
    begun = [n for n, line in enumerate(lines) if b'"op":"begin"' in line and b'"creating"' in line]
    path.write_bytes(b"".join(lines[: begun[0] + 1]))
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)
    (create,) = overtaken(path, other, lab.crypter).unfinished_creates
    assert create.urn in lines[begun[0]].decode()


def test_a_checkpoint_that_could_not_be_written_is_known_to_nobody(interrupted, lab):
    path, _, _ = interrupted("update", parallel=1)
    head, *lines = path.read_bytes().splitlines(keepends=True)
    adds = [n for n, line in enumerate(lines) if b'"op":"add"' in line and b'"id":"m-' in line]
    after = next(n for n in range(adds[0], len(lines)) if b'"op":"checkpoint"' in lines[n])
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)
    for op, known in (("unwritten", True), ("begun-anything", False)):
        following = journal.Record(op).encode()
        path.write_bytes(b"".join([head, *lines[: after + 1], following]))
        assert bool(overtaken(path, other, lab.crypter).created) == known


def test_a_store_that_refuses_a_checkpoint_is_in_the_journal(lab, tmp_path):
    path = tmp_path / "dev.journal"
    first = lab.snapshot.to_json(lab.crypter)
    written = []

    def write(data: bytes) -> None:
        if written:
            raise EngineError("no room")
        written.append(data)

    kept = Journal(FileLog(path), journal.compute_digest(first))
    subject = replace(lab.subject(), journal=kept, write=write)
    (lab.directory / "__main__.py").write_text(
        "from lab import Machine\na = Machine('a')\nb = Machine('b', size=a.size)\n"
    )
    with pytest.raises(EngineError, match="no room"):
        Deployment(subject, Options("update", preview=False), EventBus()).run()
    ids = {entry.id for entry in overtaken(path, first + b" ", lab.crypter).created}
    assert ids == set(lab.world)
    assert ids


def test_a_journal_whose_secrets_another_key_has_is_named(interrupted, lab):
    path, _, _ = interrupted("update", after="Machine('s', size=pulumi.Output.secret('hush'))")
    other = Snapshot("organization/lab/dev").to_json(lab.crypter)

    class Another:
        def decrypt(self, ciphertext: str) -> str:
            raise EngineError(f"cannot open {len(ciphertext)} characters")

    with pytest.raises(JournalError, match=r"contains secrets.*cannot open") as told:
        journal.recover(FileLog(path), other, Snapshot.from_json(other, lab.crypter), Another())
    assert "--discard-journal" in (told.value.hint or "")


def test_a_journal_that_does_not_fit_and_knows_nothing_new_adds_nothing(interrupted, lab):
    path, _, outcome = interrupted("update")
    other = outcome.snapshot.to_json(lab.crypter)
    assert entries(recovered(path, other, lab.crypter)) == entries(outcome.snapshot)
    assert overtaken(path, other, lab.crypter).find_lost_objects(outcome.snapshot) == []


def test_a_record_that_does_not_fit_the_state_is_refused(interrupted, lab):
    path, written, _ = interrupted("update")
    head = path.read_bytes().partition(b"\n")[0] + b"\n"
    path.write_bytes(head + journal.Record("remove", {"old": 99}).encode())
    with pytest.raises(JournalError, match="damaged"):
        recovered(path, written[0], lab.crypter)


def test_without_a_journal_there_is_nothing_to_recover(tmp_path, lab):
    data = Snapshot("organization/lab/dev").to_json(lab.crypter)
    snapshot = Snapshot.from_json(data, lab.crypter)
    found = journal.recover(FileLog(tmp_path / "none"), data, snapshot, lab.crypter)
    assert found == journal.RecoveredState(snapshot)


def test_a_journal_that_cannot_be_written_stops_the_run(lab, tmp_path):
    (tmp_path / "file").touch()
    first = lab.snapshot.to_json(lab.crypter)
    kept = Journal(FileLog(tmp_path / "file" / "dev.journal"), journal.compute_digest(first))
    subject = replace(lab.subject(), journal=kept)
    (lab.directory / "__main__.py").write_text("from lab import Machine\nMachine('a')\n")
    with pytest.raises(EngineError, match=r"dev\.journal cannot be written"):
        Deployment(subject, Options("update", preview=False), EventBus()).run()
    assert lab.world == {}


def test_of_several_runs_the_one_that_fits_counts(interrupted, lab):
    """Owners of a bucket's lock that came too late may leave journals that say nothing."""
    path, written, outcome = interrupted("update")
    whole = path.read_bytes()
    head = {"gpuform-journal": journal.VERSION}
    for base in (journal.compute_digest(written[0]), "of another checkpoint"):
        stray = journal.encode_line(json.dumps({**head, "base": base}).encode())
        for both in (stray + whole, whole + stray):
            path.write_bytes(both)
            assert entries(recovered(path, written[0], lab.crypter)) == entries(outcome.snapshot)


def test_of_several_runs_each_is_told(interrupted, lab):
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
    found = journal.recover(FileLog(path), written[0], snapshot, lab.crypter)
    assert entries(found.snapshot) == entries(outcome.snapshot)
    assert [
        [e.id for e in each.find_lost_objects(found.snapshot)] for each in found.orphaned_journals
    ] == [["m-lost"]] * 2
