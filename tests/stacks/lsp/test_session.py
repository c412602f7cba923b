"""A session of an editor with the server: every feature, by the protocol."""

from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from processes.commands import run_gpuform

from .conftest import TOPOLOGY, Editor, Session

FILE = "topology.yaml"
LINES = TOPOLOGY.splitlines()


def place(text: str, word: str, behind: str = "") -> tuple[int, int]:
    """Line and UTF-16 column of a word; `behind` is a text before it in the same line."""
    for number, line in enumerate(text.splitlines()):
        start = line.find(behind) + len(behind) if behind in line else -1
        at = line.find(word, start) if start >= 0 else -1
        if at >= 0:
            return number, len(line[:at].encode("utf-16-le")) // 2
    raise AssertionError(word)


def labels(found: Any) -> list[str]:
    return [each.label for each in found.items]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_problems_are_told_as_they_are_typed_and_taken_back(session: Session[Any]) -> None:
    async def steps(editor: Editor) -> None:
        editor.open(FILE, TOPOLOGY)
        await editor.until(lambda: editor.told.get(FILE) == [])
        wrong = TOPOLOGY.replace("size_tib: 5", "size_tbi: 5")
        editor.change(FILE, wrong)
        await editor.until(lambda: editor.told[FILE] != [])
        by_text = {each.message: each for each in editor.told[FILE]}
        (named,) = (each for text, each in by_text.items() if "did you mean size_tib" in text)
        line, column = place(wrong, "size_tbi")
        assert named.range == types.Range(
            types.Position(line, column), types.Position(line, column + len("size_tbi"))
        )
        assert named.severity == types.DiagnosticSeverity.Error
        editor.change(FILE, TOPOLOGY.replace("clusters:", "clusters: ["))
        await editor.until(lambda: any("]" in each.message for each in editor.told[FILE]))
        editor.change(FILE, TOPOLOGY)
        await editor.until(lambda: editor.told[FILE] == [])
        editor.change(FILE, wrong)
        await editor.until(lambda: editor.told[FILE] != [])
        closing = types.TextDocumentIdentifier(editor.uri(FILE))
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(closing))
        await editor.until(lambda: editor.told[FILE] == [])

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_problems_are_those_of_validate(session: Session[Any], folder: Path) -> None:
    wrong = TOPOLOGY.replace("clusters.train.status", "clusters.trian.status").replace(
        "us-central-8", "7"
    )
    (folder / FILE).write_text(wrong, encoding="utf-8")
    told = run_gpuform(folder, "validate").stdout

    async def steps(editor: Editor) -> list[types.Diagnostic]:
        editor.open(FILE, wrong)
        await editor.until(lambda: bool(editor.told.get(FILE)))
        return editor.told[FILE]

    found = session(steps)
    assert len(found) > 2
    for each in found:
        assert f"{FILE}:{each.range.start.line + 1}:" in told
        assert each.message.partition("\n")[0] in told


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_module_that_is_not_saved_counts_and_is_told_of(
    session: Session[Any], folder: Path
) -> None:
    module = "inputs:\n  size: {type: integer}\nshared_volumes:\n  data: {platform: together}\n"
    (folder / "volume.yaml").write_text("inputs: {}\n")
    text = "include:\n  - {file: volume.yaml, name: store, with: {size: 5}}\n"
    (folder / FILE).write_text(text)

    async def steps(editor: Editor) -> None:
        editor.open(FILE, text)
        await editor.until(
            lambda: any("size" in each.message for each in editor.told.get(FILE, ()))
        )
        editor.open("volume.yaml", module)
        await editor.until(lambda: editor.told[FILE] == [] and bool(editor.told["volume.yaml"]))
        assert any("volume_name" in each.message for each in editor.told["volume.yaml"])

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_completion(session: Session[Any]) -> None:
    async def steps(editor: Editor) -> None:
        editor.open(FILE, TOPOLOGY)

        async def at(line: int, character: int) -> list[str]:
            params = types.CompletionParams(**editor.at(FILE, line, character))
            return labels(await editor.client.text_document_completion_async(params))

        async def typed(text: str) -> list[str]:
            """What is offered at the `|` of a text, which may be no YAML."""
            number, line = next(
                (n, each) for n, each in enumerate(text.splitlines()) if "¦" in each
            )
            editor.change(FILE, text.replace("¦", ""))
            return await at(number, len(line[: line.index("¦")].encode("utf-16-le")) // 2)

        new = TOPOLOGY.replace("    gpu_type: H100_SXM\n", "    ¦\n")
        found = await typed(new)
        assert "gpu_type" in found
        assert "volume_id" in found
        assert "options" in found
        assert "region" not in found  # it is there
        assert {"node_pools", "include"} <= set(await typed(TOPOLOGY + "\n¦"))
        billing = await typed(TOPOLOGY.replace("billing_type: ON_DEMAND", "billing_type: ¦"))
        assert "ON_DEMAND" in billing
        assert "RESERVED" in billing
        places = TOPOLOGY.replace("  train:\n    platform: together", "  train:\n    platform: ¦")
        assert await typed(places) == [
            "together",
            "tensorone",
            "aios",
        ]
        assert "size_tib" in await typed(TOPOLOGY.replace("size_tib: 5}", "¦"))
        assert "train" in await typed(TOPOLOGY + '  new: "{{ clusters.¦')
        outputs = await typed(TOPOLOGY + '  new: "{{ clusters.train.¦')
        assert {"id", "status", "kube_config", "num_gpus"} <= set(outputs)
        assert await typed(TOPOLOGY + '  new: "{{ config.¦') == ["gpus", "token"]
        assert {"clusters", "config"} <= set(await typed(TOPOLOGY + '  new: "{{ ¦'))
        assert "length" in await typed(TOPOLOGY + '  new: "{{ config.gpus | ¦')
        assert {"type", "default", "secret"} <= set(
            await typed(TOPOLOGY.replace("config:\n", "config:\n  size:\n    ¦\n"))
        )
        assert "protect" in await typed(
            TOPOLOGY.replace("    gpu_type: H100_SXM\n", "    options:\n      ¦\n")
        )

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_hover(session: Session[Any]) -> None:
    async def steps(editor: Editor) -> None:
        editor.open(FILE, TOPOLOGY)

        async def over(word: str, behind: str = "") -> str:
            params = types.HoverParams(**editor.at(FILE, *place(TOPOLOGY, word, behind)))
            found = await editor.client.text_document_hover_async(params)
            return "" if found is None else found.contents.value

        assert "**num_gpus** (whole number" in await over("num_gpus")
        assert "replaces" in await over("region", 'ber-🚀", ')
        told = await over("train", 'both: "{{ clusters.')
        assert "Cluster on together, declared in line 10" in told
        assert "**clusters.train.status**" in await over("status", "{{ clusters.train.")
        assert "config" in await over("gpus", "{{ config.")
        assert "planted" not in await over("token")
        assert await over("training", "cluster_name: ") == ""

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_definition_and_references(session: Session[Any], folder: Path) -> None:
    module = "inputs: {}\nshared_volumes: {}\noutputs:\n  told: 5\n"
    (folder / "part.yaml").write_text(module)
    text = (
        TOPOLOGY
        + '  more: "{{ modules.part.told }}"\ninclude:\n  - {file: part.yaml, name: part}\n'
    )

    async def steps(editor: Editor) -> None:
        editor.open(FILE, text)

        async def leads(word: str, behind: str = "") -> tuple[str, int, int] | None:
            params = types.DefinitionParams(**editor.at(FILE, *place(text, word, behind)))
            found = await editor.client.text_document_definition_async(params)
            if found is None:
                return None
            return Path(found.uri).name, found.range.start.line, found.range.start.character

        assert await leads("data", 'volume: "{{ shared_volumes.') == (FILE, *place(text, "data:"))
        assert await leads("train", "{{ clusters.") == (FILE, *place(text, "train:"))
        assert await leads("gpus", "{{ config.") == (FILE, *place(text, "gpus:"))
        assert await leads("told", "modules.part.") == ("part.yaml", 3, 2)
        assert await leads("part.yaml", "file: ") == ("part.yaml", 0, 0)
        assert await leads("H100_SXM") is None

        where = editor.at(FILE, *place(text, "data:"))
        params = types.ReferenceParams(**where, context=types.ReferenceContext(True))
        found = await editor.client.text_document_references_async(params)
        assert [each.range.start.line for each in found] == [
            place(text, "data:")[0],
            place(text, "volume: ")[0],
            place(text, "both: ")[0],
        ]

    session(steps)


def applied(edit: types.WorkspaceEdit, texts: dict[str, str]) -> dict[str, str]:
    """The texts with the edits in them, as an editor applies them."""
    done = dict(texts)
    for change in edit.document_changes or ():
        assert isinstance(change, types.TextDocumentEdit)
        name = Path(change.text_document.uri).name
        lines = done[name].splitlines(keepends=True)
        for each in sorted(change.edits, key=lambda e: e.range.start, reverse=True):
            start, end = each.range.start, each.range.end
            assert start.line == end.line
            units = lines[start.line].encode("utf-16-le")
            new = units[: start.character * 2] + each.new_text.encode("utf-16-le")
            lines[start.line] = (new + units[end.character * 2 :]).decode("utf-16-le")
        done[name] = "".join(lines)
    return done


def renamed(session: Session[Any], texts: dict[str, str], word: str, behind: str, name: str) -> Any:
    async def steps(editor: Editor) -> Any:
        for each, text in texts.items():
            editor.open(each, text)
        where = editor.at(FILE, *place(texts[FILE], word, behind))
        range_ = await editor.client.text_document_prepare_rename_async(
            types.PrepareRenameParams(**where)
        )
        edit = await editor.client.text_document_rename_async(
            types.RenameParams(**where, new_name=name)
        )
        return range_, edit, editor.messages

    return session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_renamed_volume_is_renamed_everywhere(session: Session[Any], folder: Path) -> None:
    texts = {FILE: TOPOLOGY}
    range_, edit, _ = renamed(session, texts, "data", 'volume: "{{ shared_volumes.', "disk")
    assert range_.end.character - range_.start.character == len("data")
    done = applied(edit, texts)[FILE]
    assert done == (
        TOPOLOGY.replace("  data:", "  disk:").replace("shared_volumes.data", "shared_volumes.disk")
    )
    (folder / FILE).write_text(done, encoding="utf-8")
    assert run_gpuform(folder, "validate").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_what_is_deployed_keeps_its_objects(session: Session[Any], folder: Path) -> None:
    """The new text plans no change where the old one came up."""
    environ = {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_BACKEND_URL": f"file://{folder}"}
    environ["PULUMI_HOME"] = str(folder / "home")
    for command in ("stack init dev --emulate", "up --emulate --yes"):
        assert run_gpuform(folder, *command.split(), **environ).code == 0
    text = TOPOLOGY
    for word, behind, name in (("train", 'both: "{{ clusters.', "main"), ("data", "  ", "disk")):
        _, edit, _ = renamed(session, {FILE: text}, word, behind, name)
        text = applied(edit, {FILE: text})[FILE]
    assert "clusters.main.status" in text
    (folder / FILE).write_text(text, encoding="utf-8")
    done = run_gpuform(folder, "preview", "--emulate", "--expect-no-changes", **environ)
    assert done.code == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_configuration_key_is_renamed_in_the_settings_of_stacks(
    session: Session[Any], folder: Path
) -> None:
    settings = 'config:\n  demo:gpus: "24"\n  demo:other: "1"\n'
    (folder / "Pulumi.dev.yaml").write_text(settings)
    texts = {FILE: TOPOLOGY, "Pulumi.dev.yaml": settings}
    _, edit, _ = renamed(session, texts, "gpus", "{{ config.", "count")
    done = applied(edit, texts)
    assert done["Pulumi.dev.yaml"] == settings.replace("demo:gpus", "demo:count")
    assert "{{ config.count }}" in done[FILE]
    assert "  count: {type: integer" in done[FILE]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_name_that_cannot_be_is_refused_with_the_reason(session: Session[Any]) -> None:
    for name, why in (("two words", "is no name"), ("token", "is there already")):
        _, edit, messages = renamed(session, {FILE: TOPOLOGY}, "gpus", "{{ config.", name)
        assert edit is None
        assert any(why in each for each in messages)
    range_, edit, _ = renamed(session, {FILE: TOPOLOGY}, "H100_SXM", "gpu_type: ", "other")
    assert (range_, edit) == (None, None)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_other_files_are_left_alone(session: Session[Any]) -> None:
    async def steps(editor: Editor) -> None:
        editor.open("values.yaml", "replicas: [\n")
        editor.open(FILE, TOPOLOGY)
        await editor.until(lambda: FILE in editor.told)
        assert editor.told.get("values.yaml", []) == []
        params = types.CompletionParams(**editor.at("values.yaml", 0, 0))
        assert labels(await editor.client.text_document_completion_async(params)) == []

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_addresses_of_all_sorts(session: Session[Any], folder: Path) -> None:
    """Blanks and signs in a path; what is no file, and what no file can be."""
    odd = folder / "a b" / "é#%20"
    odd.mkdir(parents=True)
    (odd / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (odd / FILE).write_text("")

    async def steps(editor: Editor) -> None:
        for uri in (
            f"{folder.as_uri()}/%00/topology.yaml",
            "untitled:topology.yaml",
            "git:/x.yaml",
        ):
            item = types.TextDocumentItem(uri, "yaml", 1, "foo: 1\n")
            editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        editor.folder = odd
        editor.open(FILE, "foo: 1\n")
        await editor.until(lambda: bool(editor.told.get(FILE)))
        params = types.CompletionParams(**editor.at(FILE, 1, 0))
        found = labels(await editor.client.text_document_completion_async(params))
        assert "clusters" in found

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_file_that_is_closed_counts_as_it_is_on_disk(session: Session[Any], folder: Path) -> None:
    (folder / "volume.yaml").write_text("inputs:\n  size: {type: integer}\n")
    text = "include:\n  - {file: volume.yaml, name: store, with: {size: 5}}\n"

    async def steps(editor: Editor) -> None:
        editor.open(FILE, text)
        editor.open("volume.yaml", "inputs: {}\n")
        await editor.until(lambda: bool(editor.told.get(FILE)))
        which = types.TextDocumentIdentifier(editor.uri("volume.yaml"))
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(which))
        await editor.until(lambda: editor.told[FILE] == [])
        (folder / "volume.yaml").write_text("inputs: {}\n")
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
        await editor.until(lambda: bool(editor.told[FILE]))

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_file_that_is_no_utf_8_is_told_of(session: Session[Any], folder: Path) -> None:
    (folder / "other.yaml").write_bytes(b"# caf\xe9\n")

    async def steps(editor: Editor) -> None:
        editor.open(FILE, "include: [other.yaml]\n")
        await editor.until(lambda: bool(editor.told.get("other.yaml")))
        assert "not UTF-8" in editor.told["other.yaml"][0].message

    session(steps)
