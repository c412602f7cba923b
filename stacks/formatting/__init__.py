"""Format topology files for `gpuform fmt`: change white space only, and keep the meaning.

`layout` lays the text out; `meaning` compares the text before and after.
"""

from typing import Final

from yaml import YAMLError

from gpuform.stacks.formatting.layout import break_long_flows, lay_out
from gpuform.stacks.formatting.meaning import (
    FormattingError,
    build_yaml_error,
    find_difference,
    get_position,
    read_facts,
    replace_tabs,
)

__all__ = ["FormattingError", "format_topology"]

_WIDTH: Final = 100


def format_topology(data: bytes, file_name: str) -> bytes:
    """Return the formatted text of a file, the same data if nothing changes.

    Comments, order, quotes and the text of every value stay as written. Line breaks become Unix
    ones, and a byte order mark is dropped. `file_name` is for messages.

    Raises:
        FormattingError: the file is not UTF-8 or not YAML, or the formatted text would not mean
            exactly the same.
    """
    text = _decode(data, file_name)
    facts = read_facts(text, file_name)
    formatted_data = _lay_out(replace_tabs(text, file_name), file_name).encode()
    # The check protects files against faults of the layout: only an equal meaning is written.
    difference_position = find_difference(
        facts, read_facts(_decode(formatted_data, file_name), file_name)
    )
    if difference_position and not text.endswith("\n"):
        formatted_data = formatted_data.removesuffix(
            b"\n"
        )  # a `|` at the very end has no line break in its value
        difference_position = find_difference(
            facts, read_facts(_decode(formatted_data, file_name), file_name)
        )
    if difference_position:
        raise FormattingError(
            file_name,
            difference_position,
            "formatting would change the meaning from here on: the file stays unchanged",
            hint="write this part in a simpler way",
        )
    return formatted_data


def _decode(data: bytes, file_name: str) -> str:
    """Return the text with Unix line breaks, without a byte order mark at the beginning.

    Raises:
        FormattingError: the data is not UTF-8, or has another byte order mark.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        valid_text = data[: error.start].decode()
        position = get_position(valid_text, len(valid_text))
        raise FormattingError(file_name, position, "the file is not UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    mark_index = text.find("\ufeff")
    if mark_index >= 0:  # some parsers read it, some do not
        position = get_position(text, mark_index)
        raise FormattingError(file_name, position, "invisible byte order mark", "remove it")
    return text


def _lay_out(text: str, file_name: str) -> str:
    """Return the text in the standard layout, with long flow collections broken into lines.

    Raises:
        FormattingError: the text is not YAML.
    """
    try:
        laid_out_text = lay_out(text)
        # Breaking one flow collection may leave an inner one that is still too long.
        while (broken_text := break_long_flows(laid_out_text, _WIDTH)) != laid_out_text:
            laid_out_text = lay_out(broken_text)
    except (YAMLError, ValueError, OverflowError) as error:
        raise build_yaml_error(error, file_name) from None
    return laid_out_text
