"""The comments of topology files that stand before what they are about."""

from dataclasses import dataclass, field
from pathlib import Path

from gpuform.stacks.document.diagnostics import Place


@dataclass(slots=True)
class Comments:
    """Those of files that messages name as places do."""

    _files: dict[str, list[str]] = field(default_factory=dict)

    def before(self, place: Place) -> list[str]:
        """The lines of comments right above a line, without what is before them."""
        lines = self._lines(place.file)
        found: list[str] = []
        for line in reversed(lines[: place.line - 1]):
            comment = line.strip()
            if not comment.startswith("#"):
                break
            found.append(comment)
        return found[::-1]

    def first_of(self, file: Path) -> str:
        """The first comment of a file, if the file begins with one, as a text."""
        found = []
        for line in self._lines(str(file)):
            if not line.startswith("#"):
                break
            if not line.startswith("# yaml-language-server"):
                found.append(line.lstrip("# ").rstrip())
        return "\n".join(found).replace('"""', "'''").rstrip('"').strip()

    def _lines(self, file: str) -> list[str]:
        if file not in self._files:
            # It has been read before, as what it declares.
            self._files[file] = Path(file).read_text("utf-8").removeprefix("\ufeff").splitlines()
        return self._files[file]
