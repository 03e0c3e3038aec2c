"""Read and change a client's file, whichever of JSON, TOML and YAML its name says that it is.  Pure.

The modules of the formats, and the libraries that they need, are loaded with the first file of the kind.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Final

from quarterdeck.config.load import jsonc
from quarterdeck.config.load.document import JsonObject
from quarterdeck.config.secrets.masking import mask


class Format(StrEnum):
    """How a file is written."""

    JSON = "json"
    TOML = "toml"
    YAML = "yaml"


_OF_SUFFIX: Final = {".toml": Format.TOML, ".yaml": Format.YAML, ".yml": Format.YAML}


def format_of(path: PurePath | str) -> Format:
    """What a file of that name holds; JSON unless it says otherwise."""
    return _OF_SUFFIX.get(PurePath(path).suffix.lower(), Format.JSON)


def parse_as(format_: Format, text: str, *, has_comments: bool) -> JsonObject:
    """The object that `text` is, an empty one for an empty text.

    Args:
        format_: how it is written.
        text: of the file.
        has_comments: it may be JSON with comments.

    Raises:
        DocumentError: it is none.
    """
    match format_:
        case Format.TOML:
            from . import toml_text

            return toml_text.parse(text)
        case Format.YAML:
            from . import yaml_text

            return yaml_text.parse(text)
        case _:
            return jsonc.parse(text, has_comments=has_comments)


def set_row(
    format_: Format,
    text: str,
    path: Sequence[str],
    row: Mapping[str, object],
    *,
    has_comments: bool,
    is_item: bool = False,
) -> str:
    """`text` with a server's row at `path`, everything else as it is.

    Args:
        format_: how it is written.
        text: of the file.
        path: the keys that lead to the rows, and the row's name.
        row: what shall stand there.
        has_comments: it may be JSON with comments.
        is_item: the client keeps rows in a list, each with its `name`.

    Raises:
        DocumentError: `text` is of another format.
        EditError: it cannot be changed there.
    """
    match format_:
        case Format.TOML:
            from . import toml_text

            return toml_text.set_member(text, path, row)
        case Format.YAML:
            from . import yaml_text

            return yaml_text.set_member(text, path, row, is_item=is_item)
        case _:
            return jsonc.set_member(text, path, row, has_comments=has_comments)


def remove_row(format_: Format, text: str, path: Sequence[str], *, has_comments: bool) -> str:
    """`text` without the row at `path`, everything else as it is.

    Raises:
        DocumentError: `text` is of another format.
        EditError: there is none, or it cannot be taken out.
    """
    match format_:
        case Format.TOML:
            from . import toml_text

            return toml_text.remove_member(text, path)
        case Format.YAML:
            from . import yaml_text

            return yaml_text.remove_member(text, path)
        case _:
            return jsonc.remove_member(text, path, has_comments=has_comments)


def mask_as(format_: Format, text: str) -> str:
    """`text` with every value hidden that is or may be a secret."""
    match format_:
        case Format.TOML:
            from . import toml_text

            return mask(text, toml_text.scalars, toml_text.comments)
        case Format.YAML:
            from . import yaml_text

            return mask(text, yaml_text.scalars, yaml_text.comments)
        case _:
            return mask(text)
