"""Run the language server on stdin and stdout for one editor.

`gpuform lsp` calls `serve`. Answers come from `topology_text`, `renaming` and `sources`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument

from gpuform.stacks.document.diagnostics import DocumentDiagnostic
from gpuform.stacks.lsp.aliases import RenameRefused, group_edits_by_file
from gpuform.stacks.lsp.cursor import Span
from gpuform.stacks.lsp.renaming import build_rename_edits, find_renameable
from gpuform.stacks.lsp.sources import check_topology, get_problem_span
from gpuform.stacks.lsp.topology_text import Completion, TopologyText

_CHECK_DELAY_S: Final = 0.1
"""How long a text must stay unchanged before it is checked: typing changes it at every key."""
_COMPLETION_KINDS: Final = {
    "property": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.EnumMember,
    "variable": types.CompletionItemKind.Variable,
    "name": types.CompletionItemKind.Reference,
    "output": types.CompletionItemKind.Field,
    "filter": types.CompletionItemKind.Function,
}


class EditorSession:
    """The open topologies of one client, and the files with published diagnostics."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._published_uris: dict[str, set[str]] = {}
        self._check_lock = asyncio.Lock()

    def find_topology(self, uri: str) -> TopologyText | None:
        """Return the open file, or None if the file is not open or is no topology."""
        document, path = self._open_documents.get(uri), _uri_to_path(uri)
        if document is None or path is None:
            return None
        topology = TopologyText(path, document.source, self._read_open_texts())
        return topology if topology.is_topology else None

    async def check_after_delay(self, uri: str) -> None:
        """Publish the problems of a file, and of open files with an inclusion of the file.

        Nothing is published if the text changes during the delay or the check: a later call does
        it.
        """
        document = self._open_documents.get(uri)
        if document is None:
            return
        first_version = document.version
        # Every key starts a check: only the one after the last key runs.
        await asyncio.sleep(_CHECK_DELAY_S)
        async with self._check_lock:  # one at a time, the newest text of each
            if not self._is_current(uri, first_version):
                return
            topology = self.find_topology(uri)
            if topology is None:
                self._publish_diagnostics(uri, {})
                return
            problems_by_file = await asyncio.to_thread(
                check_topology, topology.path, topology.open_texts
            )
            if not self._is_current(uri, first_version):
                return
            self._publish_diagnostics(uri, problems_by_file)
            # A changed input of a module may make the including file wrong.
            for including_topology in self._list_including(topology.path):
                problems_by_file = await asyncio.to_thread(
                    check_topology, including_topology.path, including_topology.open_texts
                )
                self._publish_diagnostics(self.to_uri(including_topology.path), problems_by_file)

    def clear_diagnostics(self, uri: str) -> None:
        """Remove the published diagnostics of a closed file."""
        self._publish_diagnostics(uri, {})

    async def check_all(self) -> None:
        """Check all open files again, after a change outside of the editor."""
        for uri in list(self._open_documents):
            await self.check_after_delay(uri)

    def to_client_range(self, path: Path, span: Span) -> types.Range:
        """Return a span of a file in the client's units."""
        return self._span_to_client_range(self._read_lines(path), span)

    def _read_lines(self, path: Path) -> Sequence[str]:
        """Return the lines of a file with line ends, from the editor or else from disk."""
        source = self._read_open_texts().get(path.resolve())
        if source is None:
            with suppress(OSError):
                source = path.read_bytes().decode("utf-8", "replace")
        return _split_lines(source or "")

    def to_uri(self, path: Path) -> str:
        """Return the URI of a file, in the client's spelling for an open file."""
        paths = ((_uri_to_path(uri), uri) for uri in self._open_documents)
        open_uris = {open_path.resolve(): uri for open_path, uri in paths if open_path is not None}
        # Clients compare URIs as text, and encode some characters differently.
        return open_uris.get(path.resolve()) or from_fs_path(str(path)) or ""

    def locate(
        self, uri: str, client_position: types.Position
    ) -> tuple[TopologyText | None, int, int]:
        """Return the topology, or None, with line and column of a position in characters."""
        document = self._open_documents.get(uri)
        codec = self._server.workspace.position_codec
        lines = _split_lines("" if document is None else document.source)
        position = codec.position_from_client_units(lines, client_position)
        return self.find_topology(uri), position.line, position.character

    def build_rename(self, parameters: types.RenameParams) -> types.WorkspaceEdit | None:
        """Return the edits for renaming the entry at a position, or None without an entry.

        Raises:
            RenameRefused: the entry cannot have this name.
        """
        topology, line, column = self.locate(parameters.text_document.uri, parameters.position)
        entry_and_span = None if topology is None else find_renameable(topology, line, column)
        if topology is None or entry_and_span is None:
            return None
        changes = []
        all_edits = build_rename_edits(topology, entry_and_span[0], parameters.new_name)
        for path, edits in group_edits_by_file(all_edits).items():
            lines, file_uri = self._read_lines(path), self.to_uri(path)
            document = self._open_documents.get(file_uri)
            version = None if document is None else document.version
            # With the version, an editor refuses edits of a text that has changed meanwhile.
            identifier = types.OptionalVersionedTextDocumentIdentifier(file_uri, version)
            text_edits = [
                types.TextEdit(self._span_to_client_range(lines, edit.span), edit.new_text)
                for edit in edits
            ]
            changes.append(types.TextDocumentEdit(identifier, text_edits))
        return types.WorkspaceEdit(document_changes=changes)

    def _list_including(self, path: Path) -> list[TopologyText]:
        """Return the other open topologies with the file's name in the text."""
        texts = self._read_open_texts()
        open_topologies = (
            TopologyText(open_path, source, texts) for open_path, source in texts.items()
        )
        return [
            topology
            for topology in open_topologies
            if topology.path != path.resolve()
            and path.name in topology.text
            and topology.is_topology
        ]

    def _is_current(self, uri: str, version: int | None) -> bool:
        document = self._open_documents.get(uri)
        return document is not None and document.version == version

    @property
    def _open_documents(self) -> dict[str, TextDocument]:
        """Return the open documents by URI, in the client's spelling."""
        return {
            document.uri: document for document in self._server.workspace.text_documents.values()
        }

    def _read_open_texts(self) -> dict[Path, str]:
        """Return the texts of open files by resolved path, without documents that have no path."""
        paths = ((_uri_to_path(uri), document) for uri, document in self._open_documents.items())
        return {
            path.resolve(): open_document.source
            for path, open_document in paths
            if path is not None
        }

    def _publish_diagnostics(
        self, uri: str, problems_by_file: Mapping[Path, list[DocumentDiagnostic]]
    ) -> None:
        """Send the problems of each file, and empty lists for files without problems now."""
        problems_by_uri = {
            self.to_uri(path): problems for path, problems in problems_by_file.items()
        }
        # Editors keep diagnostics until an empty list arrives for the file.
        for file_uri in (self._published_uris.pop(uri, set()) | {uri}) - problems_by_uri.keys():
            self._send_diagnostics(file_uri, [])
        for file_uri, problems in problems_by_uri.items():
            self._send_diagnostics(file_uri, problems)
        if problems_by_uri:
            self._published_uris[uri] = set(problems_by_uri)

    def _send_diagnostics(self, uri: str, problems: list[DocumentDiagnostic]) -> None:
        """Send the editor the problems of a file in place of earlier ones; none clears the file."""
        document, path = self._open_documents.get(uri), _uri_to_path(uri)
        lines = self._read_lines(path) if problems and path is not None else []
        diagnostics = [
            types.Diagnostic(
                range=self._span_to_client_range(lines, get_problem_span(problem, lines)),
                message=f"{problem.message}\n{problem.hint}" if problem.hint else problem.message,
                severity=types.DiagnosticSeverity.Warning
                if problem.severity == "warning"
                else types.DiagnosticSeverity.Error,
                code=problem.rule or None,
                source="gpuform",
            )
            for problem in problems
        ]
        self._server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri, diagnostics, version=None if document is None else document.version
            )
        )

    def _span_to_client_range(self, lines: Sequence[str], span: Span) -> types.Range:
        """Convert a span in `lines` to a range in the character units of the client."""
        character_range = types.Range(
            types.Position(span.line, span.begin), types.Position(span.line, span.end)
        )
        return self._server.workspace.position_codec.range_to_client_units(lines, character_range)


def serve() -> None:
    """Serve one client until the client disconnects."""
    make_server().start_io()


def make_server() -> LanguageServer:
    """Return a language server with handlers for all supported requests."""
    server = LanguageServer("gpuform", version("gpuform"))
    session = EditorSession(server)
    _add_diagnostics(server, session)
    _add_completion(server, session)
    _add_navigation(server, session)
    _add_rename(server, session)
    return server


def _add_diagnostics(server: LanguageServer, session: EditorSession) -> None:
    """Check files after each open, change, save or close, and watch other files."""

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def handle_open(parameters: types.DidOpenTextDocumentParams) -> None:
        await session.check_after_delay(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def handle_change(parameters: types.DidChangeTextDocumentParams) -> None:
        await session.check_after_delay(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def handle_save(parameters: types.DidSaveTextDocumentParams) -> None:
        await session.check_after_delay(parameters.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def handle_close(parameters: types.DidCloseTextDocumentParams) -> None:
        session.clear_diagnostics(parameters.text_document.uri)
        await session.check_all()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def handle_file_change(_parameters: types.DidChangeWatchedFilesParams) -> None:
        await session.check_all()

    @server.feature(types.INITIALIZED)
    async def register_watcher(_parameters: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        watch_capabilities = workspace.did_change_watched_files if workspace else None
        # Clients report changed files only after a registration, which not every client supports.
        if watch_capabilities is not None and watch_capabilities.dynamic_registration:
            yaml_watcher = types.FileSystemWatcher("**/*.{yaml,yml}")
            registration = types.Registration(
                "files",
                types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                types.DidChangeWatchedFilesRegistrationOptions([yaml_watcher]),
            )
            await server.client_register_capability_async(types.RegistrationParams([registration]))


def _add_completion(server: LanguageServer, session: EditorSession) -> None:
    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION,
        types.CompletionOptions(trigger_characters=[".", ":", "{", " ", "|"]),
    )
    def complete(parameters: types.CompletionParams) -> types.CompletionList:
        topology, line, column = session.locate(parameters.text_document.uri, parameters.position)
        completions = [] if topology is None else topology.list_completions(line, column)

        def build_edit(completion: Completion) -> types.TextEdit | None:
            span = Span(line, column - completion.replaced_length, column)
            if topology is None or not completion.replaced_length:
                return None
            return types.TextEdit(
                session.to_client_range(topology.path, span), completion.replacement
            )

        return types.CompletionList(
            is_incomplete=False,
            items=[
                types.CompletionItem(
                    label=completion.name,
                    kind=_COMPLETION_KINDS[completion.kind],
                    text_edit=build_edit(completion),
                    # Editors filter by the replaced text, which begins with the dot.
                    filter_text=f".{completion.name}" if completion.replaced_length else None,
                    # Editors sort by name otherwise, and required keys would be lost among the
                    # others.
                    sort_text=f"{'0' if completion.is_first else '1'}{number:04}",
                    documentation=types.MarkupContent(
                        types.MarkupKind.Markdown, completion.documentation
                    )
                    if completion.documentation
                    else None,
                )
                for number, completion in enumerate(completions)
            ],
        )


def _add_navigation(server: LanguageServer, session: EditorSession) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def build_hover(parameters: types.HoverParams) -> types.Hover | None:
        topology, line, column = session.locate(parameters.text_document.uri, parameters.position)
        description = "" if topology is None else topology.describe_at(line, column)
        markdown = types.MarkupContent(types.MarkupKind.Markdown, description)
        return types.Hover(markdown) if description else None

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def find_definition(parameters: types.DefinitionParams) -> types.Location | None:
        topology, line, column = session.locate(parameters.text_document.uri, parameters.position)
        definition = None if topology is None else topology.find_definition(line, column)
        if definition is None:
            return None
        path, entry = definition
        span = Span(0, 0, 0) if entry is None else entry.span
        return types.Location(session.to_uri(path), session.to_client_range(path, span))

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def find_references(parameters: types.ReferenceParams) -> list[types.Location]:
        topology, line, column = session.locate(parameters.text_document.uri, parameters.position)
        file_and_entry = None if topology is None else topology.find_meant_entry(line, column)
        if topology is None or file_and_entry is None:
            return []
        path, entry = file_and_entry
        spans = [(path, entry.span)] if parameters.context.include_declaration else []
        spans += topology.find_uses(entry.section, entry.name)
        return [
            types.Location(session.to_uri(file), session.to_client_range(file, span))
            for file, span in spans
        ]


def _add_rename(server: LanguageServer, session: EditorSession) -> None:
    """Answer requests for renames; the user sees the reason of a refusal."""

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare_rename(parameters: types.PrepareRenameParams) -> types.Range | None:
        topology, line, column = session.locate(parameters.text_document.uri, parameters.position)
        entry_and_span = None if topology is None else find_renameable(topology, line, column)
        if topology is None or entry_and_span is None:
            return None
        return session.to_client_range(topology.path, entry_and_span[1])

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def rename(parameters: types.RenameParams) -> types.WorkspaceEdit | None:
        try:
            return session.build_rename(parameters)
        except RenameRefused as error:
            message = types.ShowMessageParams(types.MessageType.Error, str(error))
            server.window_show_message(message)
            return None


def _uri_to_path(uri: str) -> Path | None:
    """Return the file of a URI, or None for a URI of anything else."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    # A URI may contain %00, but no path may.
    return None if not path or "\0" in path else Path(path)


def _split_lines(text: str) -> list[str]:
    """Return the lines with line ends, and an empty last line after a final line break."""
    lines = text.splitlines(keepends=True)
    return lines if lines and not text.endswith(("\n", "\r")) else [*lines, ""]
