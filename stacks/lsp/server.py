"""The language server, on stdin and stdout: an editor's texts in, what is known of them out."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument

from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.lsp.aliasing import RenameRefused, by_file
from gpuform.stacks.lsp.checking import check, span_of
from gpuform.stacks.lsp.cursor import Span
from gpuform.stacks.lsp.renaming import rename, renameable
from gpuform.stacks.lsp.topologies import Completion, TopologyText

_PAUSE: Final = 0.1
"""Seconds that a text has to rest before it is checked: who types changes it at every key."""
_KINDS: Final = {
    "property": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.EnumMember,
    "variable": types.CompletionItemKind.Variable,
    "name": types.CompletionItemKind.Reference,
    "output": types.CompletionItemKind.Field,
    "filter": types.CompletionItemKind.Function,
}


class Editing:
    """The open topologies of one client, and what was told of their files."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._told: dict[str, set[str]] = {}
        self._checking = asyncio.Lock()

    def topology(self, uri: str) -> TopologyText | None:
        """The open file, where it is a topology."""
        document, path = self._open.get(uri), _path(uri)
        if document is None or path is None:
            return None
        found = TopologyText(path, document.source, self._texts())
        return found if found.is_topology else None

    async def check_soon(self, uri: str) -> None:
        """Tells what is wrong, unless the text has changed by then."""
        document = self._open.get(uri)
        if document is None:
            return
        at_first = document.version
        await asyncio.sleep(_PAUSE)
        async with self._checking:  # one at a time, the newest text of each
            if not self._is_current(uri, at_first):
                return
            topology = self.topology(uri)
            if topology is None:
                self._publish(uri, {})
                return
            found = await asyncio.to_thread(check, topology.path, topology.others)
            if not self._is_current(uri, at_first):
                return
            self._publish(uri, found)
            for other in self._including(topology.path):
                found = await asyncio.to_thread(check, other.path, other.others)
                self._publish(self.uri(other.path), found)

    def forget(self, uri: str) -> None:
        """The file is closed: nothing is told of it any more."""
        self._publish(uri, {})

    async def check_all(self) -> None:
        """Tells what is wrong in all open files: one that is not open has changed."""
        for uri in list(self._open):
            await self.check_soon(uri)

    def range_of(self, path: Path, span: Span) -> types.Range:
        """A part of a line as the client counts."""
        return self._client_range(self._lines(path), span)

    def _lines(self, path: Path) -> Sequence[str]:
        """Those of a file, with their ends, as they are in the editor where it is open."""
        text = self._texts().get(path.resolve())
        if text is None:
            try:
                text = path.read_bytes().decode("utf-8", "replace")
            except OSError:
                text = ""
        return _lines_of(text)

    def uri(self, path: Path) -> str:
        """The file's, spelt as the client has it where it is open there."""
        paths = ((_path(uri), uri) for uri in self._open)
        known = {own.resolve(): uri for own, uri in paths if own is not None}
        return known.get(path.resolve()) or from_fs_path(str(path)) or ""

    def position(self, uri: str, place: types.Position) -> tuple[int, int]:
        """A client's place as line and column in characters."""
        document = self._open.get(uri)
        codec = self._server.workspace.position_codec
        lines = _lines_of("" if document is None else document.source)
        found = codec.position_from_client_units(lines, place)
        return found.line, found.character

    def edits(self, uri: str, place: types.Position, name: str) -> types.WorkspaceEdit | None:
        """Those of a rename. Raises RenameRefused."""
        topology = self.topology(uri)
        found = None if topology is None else renameable(topology, *self.position(uri, place))
        if topology is None or found is None:
            return None
        changes = []
        for path, edits in by_file(rename(topology, found[0], name)).items():
            lines, where = self._lines(path), self.uri(path)
            document = self._open.get(where)
            version = None if document is None else document.version
            which = types.OptionalVersionedTextDocumentIdentifier(where, version)
            texts = [
                types.TextEdit(self._client_range(lines, each.span), each.text) for each in edits
            ]
            changes.append(types.TextDocumentEdit(which, texts))
        return types.WorkspaceEdit(document_changes=changes)

    def _including(self, path: Path) -> list[TopologyText]:
        """The other open topologies that name the file."""
        texts = self._texts()
        open_ones = (TopologyText(each, text, texts) for each, text in texts.items())
        return [
            each
            for each in open_ones
            if each.path != path.resolve() and path.name in each.text and each.is_topology
        ]

    def _is_current(self, uri: str, number: int | None) -> bool:
        known = self._open.get(uri)
        return known is not None and known.version == number

    @property
    def _open(self) -> dict[str, TextDocument]:
        """The open documents by their addresses, as the client spells them."""
        return {each.uri: each for each in self._server.workspace.text_documents.values()}

    def _texts(self) -> dict[Path, str]:
        paths = ((_path(uri), document) for uri, document in self._open.items())
        return {path.resolve(): each.source for path, each in paths if path is not None}

    def _publish(self, uri: str, found: Mapping[Path, list[Diagnostic]]) -> None:
        """Tells of each file, and of those that were told of before and have nothing more."""
        by_uri = {self.uri(path): problems for path, problems in found.items()}
        for each in (self._told.pop(uri, set()) | {uri}) - by_uri.keys():
            self._tell(each, [])
        for each, problems in by_uri.items():
            self._tell(each, problems)
        if by_uri:
            self._told[uri] = set(by_uri)

    def _tell(self, uri: str, problems: list[Diagnostic]) -> None:
        document, path = self._open.get(uri), _path(uri)
        lines = self._lines(path) if problems and path is not None else []
        diagnostics = [
            types.Diagnostic(
                range=self._client_range(lines, span_of(each, lines)),
                message=f"{each.message}\n{each.hint}" if each.hint else each.message,
                severity=types.DiagnosticSeverity.Warning
                if each.severity == "warning"
                else types.DiagnosticSeverity.Error,
                code=each.rule or None,
                source="gpuform",
            )
            for each in problems
        ]
        self._server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri, diagnostics, version=None if document is None else document.version
            )
        )

    def _client_range(self, lines: Sequence[str], span: Span) -> types.Range:
        whole = types.Range(
            types.Position(span.line, span.begin), types.Position(span.line, span.end)
        )
        return self._server.workspace.position_codec.range_to_client_units(lines, whole)


def serve() -> None:
    """Serves one client until it has gone."""
    make_server().start_io()


def make_server() -> LanguageServer:
    """The server with all that it answers."""
    server = LanguageServer("gpuform", version("gpuform"))
    editing = Editing(server)
    _add_checking(server, editing)
    _add_completing(server, editing)
    _add_reading(server, editing)
    _add_renaming(server, editing)
    return server


def _add_checking(server: LanguageServer, editing: Editing) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(parameters: types.DidOpenTextDocumentParams) -> None:
        await editing.check_soon(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(parameters: types.DidChangeTextDocumentParams) -> None:
        await editing.check_soon(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(parameters: types.DidSaveTextDocumentParams) -> None:
        await editing.check_soon(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(parameters: types.DidCloseTextDocumentParams) -> None:
        editing.forget(parameters.text_document.uri)
        await editing.check_all()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def watched(_parameters: types.DidChangeWatchedFilesParams) -> None:
        await editing.check_all()

    @server.feature(types.INITIALIZED)
    async def watch(_parameters: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        able = workspace.did_change_watched_files if workspace else None
        if able is not None and able.dynamic_registration:
            yaml = types.FileSystemWatcher("**/*.{yaml,yml}")
            watching = types.Registration(
                "files",
                types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                types.DidChangeWatchedFilesRegistrationOptions([yaml]),
            )
            await server.client_register_capability_async(types.RegistrationParams([watching]))


def _add_completing(server: LanguageServer, editing: Editing) -> None:
    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION,
        types.CompletionOptions(trigger_characters=[".", ":", "{", " ", "|"]),
    )
    def complete(parameters: types.CompletionParams) -> types.CompletionList:
        uri = parameters.text_document.uri
        topology = editing.topology(uri)
        place = editing.position(uri, parameters.position)
        found = [] if topology is None else topology.completions(*place)

        def edit(each: Completion) -> types.TextEdit | None:
            line, column = place
            span = Span(line, column - each.of, column)
            if topology is None or not each.of:
                return None
            return types.TextEdit(editing.range_of(topology.path, span), each.instead)

        return types.CompletionList(
            is_incomplete=False,
            items=[
                types.CompletionItem(
                    label=each.name,
                    kind=_KINDS[each.kind],
                    text_edit=edit(each),
                    filter_text=f".{each.name}" if each.of else None,
                    sort_text=f"{'0' if each.is_first else '1'}{number:04}",
                    documentation=types.MarkupContent(types.MarkupKind.Markdown, each.text)
                    if each.text
                    else None,
                )
                for number, each in enumerate(found)
            ],
        )


def _add_reading(server: LanguageServer, editing: Editing) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(parameters: types.HoverParams) -> types.Hover | None:
        uri = parameters.text_document.uri
        topology = editing.topology(uri)
        place = editing.position(uri, parameters.position)
        text = "" if topology is None else topology.hover(*place)
        markdown = types.MarkupContent(types.MarkupKind.Markdown, text)
        return types.Hover(markdown) if text else None

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def define(parameters: types.DefinitionParams) -> types.Location | None:
        uri = parameters.text_document.uri
        topology = editing.topology(uri)
        place = editing.position(uri, parameters.position)
        found = None if topology is None else topology.definition(*place)
        if found is None:
            return None
        path, named = found
        span = Span(0, 0, 0) if named is None else named.span
        return types.Location(editing.uri(path), editing.range_of(path, span))

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def refer(parameters: types.ReferenceParams) -> list[types.Location]:
        uri = parameters.text_document.uri
        topology = editing.topology(uri)
        place = editing.position(uri, parameters.position)
        meant = None if topology is None else topology.meant(*place)
        if topology is None or meant is None:
            return []
        path, named = meant
        places = [(path, named.span)] if parameters.context.include_declaration else []
        places += topology.uses(named.section, named.name)
        return [
            types.Location(editing.uri(file), editing.range_of(file, span)) for file, span in places
        ]


def _add_renaming(server: LanguageServer, editing: Editing) -> None:
    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare(parameters: types.PrepareRenameParams) -> types.Range | None:
        uri = parameters.text_document.uri
        topology = editing.topology(uri)
        place = editing.position(uri, parameters.position)
        found = None if topology is None else renameable(topology, *place)
        if topology is None or found is None:
            return None
        return editing.range_of(topology.path, found[1])

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def change_name(parameters: types.RenameParams) -> types.WorkspaceEdit | None:
        try:
            uri, place = parameters.text_document.uri, parameters.position
            return editing.edits(uri, place, parameters.new_name)
        except RenameRefused as error:
            told = types.ShowMessageParams(types.MessageType.Error, str(error))
            server.window_show_message(told)
            return None


def _path(uri: str) -> Path | None:
    """The file of an address; None for an address of anything else."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return None if not path or "\0" in path else Path(path)


def _lines_of(text: str) -> list[str]:
    """With their ends; the last one may be empty, and a cursor be in it."""
    lines = text.splitlines(keepends=True)
    return lines if lines and not text.endswith(("\n", "\r")) else [*lines, ""]
