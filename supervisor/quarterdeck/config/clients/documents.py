"""Read and change a client's file as JSON, TOML or YAML, by its name.  Pure.

The modules of the formats, and the libraries that they need, are loaded with the first file of the kind.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

from quarterdeck.config.load import jsonc
from quarterdeck.config.load.document import JsonObject
from quarterdeck.config.secrets.masking import mask


class Editor(NamedTuple):
    """The functions of one format; each raises `DocumentError` for a text of another one.

    `set_row` puts a server's row at the end of a path of keys, `remove_row` takes it out; everything else is unchanged,
    or `EditError` raised.  `mask` hides every value that is or may be a secret.
    """

    parse: Callable[[str], JsonObject]
    set_row: Callable[[str, Sequence[str], Mapping[str, object]], str]
    remove_row: Callable[[str, Sequence[str]], str]
    mask: Callable[[str], str]
    is_json: bool = False


def editor_of(path: PurePath | str, *, has_comments: bool = True, has_list: bool = False) -> Editor:
    """Return the functions for a file of that name, JSON unless its suffix is of another format.

    JSON may have comments with `has_comments`; in YAML `has_list` keeps rows in a list, each with its `name`.
    """
    match PurePath(path).suffix.lower():
        case ".toml":
            from . import toml_text as toml

            hide = partial(mask, find_scalars=toml.scalars, find_comments=toml.comments)
            return Editor(toml.parse, toml.set_member, toml.remove_member, hide)
        case ".yaml" | ".yml":
            from . import yaml_text as yaml

            hide = partial(mask, find_scalars=yaml.scalars, find_comments=yaml.comments)
            return Editor(yaml.parse, partial(yaml.set_member, is_item=has_list), yaml.remove_member, hide)
        case _:
            return Editor(
                partial(jsonc.parse, has_comments=has_comments),
                partial(jsonc.set_member, has_comments=has_comments),
                partial(jsonc.remove_member, has_comments=has_comments),
                mask,
                is_json=True,
            )
