"""Test every feature of the language server over the protocol, with an editor's client."""

from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from processes.commands import run_gpuform

from .conftest import TOPOLOGY, Editor, Session

FILE = "topology.yaml"
LINES = TOPOLOGY.splitlines()


def find_position(text: str, word: str, behind: str = "") -> tuple[int, int]:
    """Return line and UTF-16 column of a word, which follows `behind` in the same line."""
    for number, line in enumerate(text.splitlines()):
        start = line.find(behind) + len(behind) if behind in line else -1
        at = line.find(word, start) if start >= 0 else -1
        if at >= 0:
            return number, len(line[:at].encode("utf-16-le")) // 2
    raise AssertionError(word)


def list_labels(answer: Any) -> list[str]:
    return [item.label for item in answer.items]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_problems_are_published_while_typing_and_removed_when_corrected(
    session: Session[Any],
) -> None:
    async def steps(editor: Editor) -> None:
        editor.open(FILE, TOPOLOGY)
        await editor.wait_until(lambda: editor.diagnostics.get(FILE) == [])
        wrong = TOPOLOGY.replace("size_tib: 5", "size_tbi: 5")
        editor.change(FILE, wrong)
        await editor.wait_until(lambda: editor.diagnostics[FILE] != [])
        by_text = {item.message: item for item in editor.diagnostics[FILE]}
        (named,) = (item for message, item in by_text.items() if "did you mean size_tib" in message)
        line, column = find_position(wrong, "size_tbi")
        assert named.range == types.Range(
            types.Position(line, column), types.Position(line, column + len("size_tbi"))
        )
        assert named.severity == types.DiagnosticSeverity.Error
        editor.change(FILE, TOPOLOGY.replace("clusters:", "clusters: ["))
        await editor.wait_until(
            lambda: any("]" in item.message for item in editor.diagnostics[FILE])
        )
        editor.change(FILE, TOPOLOGY)
        await editor.wait_until(lambda: editor.diagnostics[FILE] == [])
        editor.change(FILE, wrong)
        await editor.wait_until(lambda: editor.diagnostics[FILE] != [])
        closing = types.TextDocumentIdentifier(editor.build_uri(FILE))
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(closing))
        await editor.wait_until(lambda: editor.diagnostics[FILE] == [])

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_diagnostics_equal_the_problems_of_validate(session: Session[Any], folder: Path) -> None:
    wrong = TOPOLOGY.replace("clusters.train.status", "clusters.trian.status").replace(
        "us-central-8", "7"
    )
    (folder / FILE).write_text(wrong, encoding="utf-8")
    output = run_gpuform(folder, "validate").stdout

    async def steps(editor: Editor) -> list[types.Diagnostic]:
        editor.open(FILE, wrong)
        await editor.wait_until(lambda: bool(editor.diagnostics.get(FILE)))
        return editor.diagnostics[FILE]

    answer = session(steps)
    assert len(answer) > 2
    for item in answer:
        assert f"{FILE}:{item.range.start.line + 1}:" in output
        assert item.message.partition("\n")[0] in output


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_module_that_is_not_saved_counts_and_is_told_of(
    session: Session[Any], folder: Path
) -> None:
    module = "inputs:\n  size: {type: integer}\nshared_volumes:\n  data: {platform: together}\n"
    (folder / "volume.yaml").write_text("inputs: {}\n")
    topology = "include:\n  - {file: volume.yaml, name: store, with: {size: 5}}\n"
    (folder / FILE).write_text(topology)

    async def steps(editor: Editor) -> None:
        editor.open(FILE, topology)
        await editor.wait_until(
            lambda: any("size" in item.message for item in editor.diagnostics.get(FILE, ()))
        )
        editor.open("volume.yaml", module)
        await editor.wait_until(
            lambda: editor.diagnostics[FILE] == [] and bool(editor.diagnostics["volume.yaml"])
        )
        assert any("volume_name" in item.message for item in editor.diagnostics["volume.yaml"])

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_completion(session: Session[Any]) -> None:
    async def steps(editor: Editor) -> None:
        editor.open(FILE, TOPOLOGY)

        async def complete_at(line: int, character: int) -> list[str]:
            params = types.CompletionParams(**editor.build_position(FILE, line, character))
            return list_labels(await editor.client.text_document_completion_async(params))

        async def complete_typed(text: str) -> list[str]:
            """Return the completions at the mark of a text, which may be no YAML."""
            number, line = next(
                (n, item) for n, item in enumerate(text.splitlines()) if "¦" in item
            )
            editor.change(FILE, text.replace("¦", ""))
            return await complete_at(number, len(line[: line.index("¦")].encode("utf-16-le")) // 2)

        new = TOPOLOGY.replace("    gpu_type: H100_SXM\n", "    ¦\n")
        answer = await complete_typed(new)
        assert "gpu_type" in answer
        assert "volume_id" in answer
        assert "options" in answer
        assert "region" not in answer  # it is there
        assert {"node_pools", "include"} <= set(await complete_typed(TOPOLOGY + "\n¦"))
        billing = await complete_typed(
            TOPOLOGY.replace("billing_type: ON_DEMAND", "billing_type: ¦")
        )
        assert "ON_DEMAND" in billing
        assert "RESERVED" in billing
        topology = TOPOLOGY.replace("  train:\n    platform: together", "  train:\n    platform: ¦")
        assert await complete_typed(topology) == [
            "together",
            "tensorone",
            "aios",
        ]
        assert "size_tib" in await complete_typed(TOPOLOGY.replace("size_tib: 5}", "¦"))
        assert "train" in await complete_typed(TOPOLOGY + '  new: "{{ clusters.¦')
        outputs = await complete_typed(TOPOLOGY + '  new: "{{ clusters.train.¦')
        assert {"id", "status", "kube_config", "num_gpus"} <= set(outputs)
        assert await complete_typed(TOPOLOGY + '  new: "{{ config.¦') == ["gpus", "token"]
        assert {"clusters", "config"} <= set(await complete_typed(TOPOLOGY + '  new: "{{ ¦'))
        assert "length" in await complete_typed(TOPOLOGY + '  new: "{{ config.gpus | ¦')
        assert {"type", "default", "secret"} <= set(
            await complete_typed(TOPOLOGY.replace("config:\n", "config:\n  size:\n    ¦\n"))
        )
        assert "protect" in await complete_typed(
            TOPOLOGY.replace("    gpu_type: H100_SXM\n", "    options:\n      ¦\n")
        )

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_hover(session: Session[Any]) -> None:
    async def steps(editor: Editor) -> None:
        editor.open(FILE, TOPOLOGY)

        async def hover(word: str, behind: str = "") -> str:
            params = types.HoverParams(
                **editor.build_position(FILE, *find_position(TOPOLOGY, word, behind))
            )
            answer = await editor.client.text_document_hover_async(params)
            return "" if answer is None else answer.contents.value

        assert "**num_gpus** (whole number" in await hover("num_gpus")
        assert "replaces" in await hover("region", 'ber-🚀", ')
        output = await hover("train", 'both: "{{ clusters.')
        assert "Cluster on together, declared in line 10" in output
        assert "**clusters.train.status**" in await hover("status", "{{ clusters.train.")
        assert "config" in await hover("gpus", "{{ config.")
        assert "planted" not in await hover("token")
        assert await hover("training", "cluster_name: ") == ""

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_definition_and_references(session: Session[Any], folder: Path) -> None:
    module = "inputs: {}\nshared_volumes: {}\noutputs:\n  output: 5\n"
    (folder / "part.yaml").write_text(module)
    topology = (
        TOPOLOGY
        + '  more: "{{ modules.part.output }}"\ninclude:\n  - {file: part.yaml, name: part}\n'
    )

    async def steps(editor: Editor) -> None:
        editor.open(FILE, topology)

        async def find_definition(word: str, behind: str = "") -> tuple[str, int, int] | None:
            params = types.DefinitionParams(
                **editor.build_position(FILE, *find_position(topology, word, behind))
            )
            answer = await editor.client.text_document_definition_async(params)
            if answer is None:
                return None
            return Path(answer.uri).name, answer.range.start.line, answer.range.start.character

        assert await find_definition("data", 'volume: "{{ shared_volumes.') == (
            FILE,
            *find_position(topology, "data:"),
        )
        assert await find_definition("train", "{{ clusters.") == (
            FILE,
            *find_position(topology, "train:"),
        )
        assert await find_definition("gpus", "{{ config.") == (
            FILE,
            *find_position(topology, "gpus:"),
        )
        assert await find_definition("output", "modules.part.") == ("part.yaml", 3, 2)
        assert await find_definition("part.yaml", "file: ") == ("part.yaml", 0, 0)
        assert await find_definition("H100_SXM") is None

        where = editor.build_position(FILE, *find_position(topology, "data:"))
        params = types.ReferenceParams(**where, context=types.ReferenceContext(True))
        answer = await editor.client.text_document_references_async(params)
        assert [item.range.start.line for item in answer] == [
            find_position(topology, "data:")[0],
            find_position(topology, "volume: ")[0],
            find_position(topology, "both: ")[0],
        ]

    session(steps)


def apply_workspace_edit(edit: types.WorkspaceEdit, texts: dict[str, str]) -> dict[str, str]:
    """Return the texts after the edits, applied as an editor does."""
    renamed_files = dict(texts)
    for change in edit.document_changes or ():
        assert isinstance(change, types.TextDocumentEdit)
        name = Path(change.text_document.uri).name
        lines = renamed_files[name].splitlines(keepends=True)
        for item in sorted(change.edits, key=lambda e: e.range.start, reverse=True):
            start, end = item.range.start, item.range.end
            assert start.line == end.line
            units = lines[start.line].encode("utf-16-le")
            new = units[: start.character * 2] + item.new_text.encode("utf-16-le")
            lines[start.line] = (new + units[end.character * 2 :]).decode("utf-16-le")
        renamed_files[name] = "".join(lines)
    return renamed_files


def rename_entry(
    session: Session[Any], texts: dict[str, str], word: str, behind: str, name: str
) -> Any:
    async def steps(editor: Editor) -> Any:
        for item, content in texts.items():
            editor.open(item, content)
        where = editor.build_position(FILE, *find_position(texts[FILE], word, behind))
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
def test_renaming_a_volume_changes_every_reference(session: Session[Any], folder: Path) -> None:
    texts = {FILE: TOPOLOGY}
    range_, edit, _ = rename_entry(session, texts, "data", 'volume: "{{ shared_volumes.', "disk")
    assert range_.end.character - range_.start.character == len("data")
    renamed_files = apply_workspace_edit(edit, texts)[FILE]
    assert renamed_files == (
        TOPOLOGY.replace("  data:", "  disk:").replace("shared_volumes.data", "shared_volumes.disk")
    )
    (folder / FILE).write_text(renamed_files, encoding="utf-8")
    assert run_gpuform(folder, "validate").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_renamed_deployed_resources_keep_their_objects(session: Session[Any], folder: Path) -> None:
    """The renamed topology plans no change of the applied stack."""
    environ = {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_BACKEND_URL": f"file://{folder}"}
    environ["PULUMI_HOME"] = str(folder / "home")
    for command in ("stack init dev --emulate", "up --emulate --yes"):
        assert run_gpuform(folder, *command.split(), **environ).code == 0
    topology = TOPOLOGY
    for word, behind, name in (("train", 'both: "{{ clusters.', "main"), ("data", "  ", "disk")):
        _, edit, _ = rename_entry(session, {FILE: topology}, word, behind, name)
        topology = apply_workspace_edit(edit, {FILE: topology})[FILE]
    assert "clusters.main.status" in topology
    (folder / FILE).write_text(topology, encoding="utf-8")
    renamed_files = run_gpuform(folder, "preview", "--emulate", "--expect-no-changes", **environ)
    assert renamed_files.code == 0, renamed_files.stdout + renamed_files.stderr


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_configuration_key_is_renamed_in_the_settings_of_stacks(
    session: Session[Any], folder: Path
) -> None:
    settings = 'config:\n  demo:gpus: "24"\n  demo:other: "1"\n'
    (folder / "Pulumi.dev.yaml").write_text(settings)
    texts = {FILE: TOPOLOGY, "Pulumi.dev.yaml": settings}
    _, edit, _ = rename_entry(session, texts, "gpus", "{{ config.", "count")
    renamed_files = apply_workspace_edit(edit, texts)
    assert renamed_files["Pulumi.dev.yaml"] == settings.replace("demo:gpus", "demo:count")
    assert "{{ config.count }}" in renamed_files[FILE]
    assert "  count: {type: integer" in renamed_files[FILE]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_an_invalid_or_taken_name_is_refused_with_the_reason(session: Session[Any]) -> None:
    for name, why in (("two words", "is not a valid name"), ("token", "already exists")):
        _, edit, messages = rename_entry(session, {FILE: TOPOLOGY}, "gpus", "{{ config.", name)
        assert edit is None
        assert any(why in item for item in messages)
    range_, edit, _ = rename_entry(session, {FILE: TOPOLOGY}, "H100_SXM", "gpu_type: ", "other")
    assert (range_, edit) == (None, None)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_files_that_are_no_topologies_get_no_answers(session: Session[Any]) -> None:
    async def steps(editor: Editor) -> None:
        editor.open("values.yaml", "replicas: [\n")
        editor.open(FILE, TOPOLOGY)
        await editor.wait_until(lambda: FILE in editor.diagnostics)
        assert editor.diagnostics.get("values.yaml", []) == []
        params = types.CompletionParams(**editor.build_position("values.yaml", 0, 0))
        assert list_labels(await editor.client.text_document_completion_async(params)) == []

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_unusual_uris_get_answers(session: Session[Any], folder: Path) -> None:
    """Cover blanks and special characters in paths, missing files, and URIs that are no files."""
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
        await editor.wait_until(lambda: bool(editor.diagnostics.get(FILE)))
        params = types.CompletionParams(**editor.build_position(FILE, 1, 0))
        answer = list_labels(await editor.client.text_document_completion_async(params))
        assert "clusters" in answer

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_closed_file_is_read_from_disk(session: Session[Any], folder: Path) -> None:
    (folder / "volume.yaml").write_text("inputs:\n  size: {type: integer}\n")
    topology = "include:\n  - {file: volume.yaml, name: store, with: {size: 5}}\n"

    async def steps(editor: Editor) -> None:
        editor.open(FILE, topology)
        editor.open("volume.yaml", "inputs: {}\n")
        await editor.wait_until(lambda: bool(editor.diagnostics.get(FILE)))
        which = types.TextDocumentIdentifier(editor.build_uri("volume.yaml"))
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(which))
        await editor.wait_until(lambda: editor.diagnostics[FILE] == [])
        (folder / "volume.yaml").write_text("inputs: {}\n")
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
        await editor.wait_until(lambda: bool(editor.diagnostics[FILE]))

    session(steps)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_file_that_is_not_utf_8_is_reported(session: Session[Any], folder: Path) -> None:
    (folder / "other.yaml").write_bytes(b"# caf\xe9\n")

    async def steps(editor: Editor) -> None:
        editor.open(FILE, "include: [other.yaml]\n")
        await editor.wait_until(lambda: bool(editor.diagnostics.get("other.yaml")))
        assert "not UTF-8" in editor.diagnostics["other.yaml"][0].message

    session(steps)
