"""What a user has clients see of one server in place of its own words, and what they do not see of it at all.

    {"rename": {"create_issue": "new_issue"},
     "describe": {"create_issue": {"title": "New issue", "description": "Opens an issue in our tracker."}},
     "hide": ["delete_*", "file:///etc/*"],
     "arguments": {"create_issue": {"owner": "me", "labels": {"default": []}}}}

All are keys of a server's row, and name what the server calls its own.  What is approved, hashed and scanned stays the
server's own definition.  Pure.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from quarterdeck.common.patterns import may_fit
from quarterdeck_protocol.policy import FrozenModel

MAX_NEW_NAME_CHARS: Final = 64
"""The models' interfaces take no longer whole name."""

_NEW_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _new_name(text: str) -> str:
    if not _NEW_NAME.fullmatch(text):
        raise ValueError(f"is no name for every client: write 1 to {MAX_NEW_NAME_CHARS} letters, digits, '_' or '-'")
    return text


class Words(FrozenModel):
    """What is said of a tool or a prompt: `title` to people, `description` to models; None for the server's own."""

    title: str | None = None
    description: str | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe it as it is written: a text is the description."""
        return {"anyOf": [{"type": "string"}, handler(core)]}


class GivenArgument(FrozenModel):
    """A value for an argument: `fixed`, which no caller may send, or a `default`, which one may send otherwise."""

    fixed: Any = None
    default: Any = None

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, __: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe it as it is written: any value, for a bare one is fixed."""
        return {}

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("say one of 'fixed' and 'default'")
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether no caller may send it."""
        return "fixed" in self.model_fields_set

    @property
    def value(self) -> Any:
        """The value that the server gets."""
        return self.fixed if self.is_fixed else self.default


def _to_given(value: Any) -> Any:
    """Take a bare value as fixed; an object with one of the two keys and no other is not a bare value."""
    if isinstance(value, GivenArgument) or (
        isinstance(value, Mapping) and len(value) == 1 and set(value) <= set(GivenArgument.model_fields)
    ):
        return value
    return {"fixed": value}


_NewName = Annotated[str, AfterValidator(_new_name), Field(json_schema_extra={"pattern": f"^{_NEW_NAME.pattern}$"})]
_Described = Annotated[
    Words, BeforeValidator(lambda value: {"description": value} if isinstance(value, str) else value)
]
_Given = Annotated[GivenArgument, BeforeValidator(_to_given)]


class ServerOverrides(FrozenModel):
    """What of a server is shown otherwise, or not at all.

    Attributes:
        rename: new names of tools and prompts, by the server's own.
        describe: what is said of tools and prompts, a description or an object with `title` and `description`.
        hide: globs of tools, prompts and URIs that are neither listed nor answered.
        arguments: by tool and argument a value of yours; an object with `default` is one that callers may override.
    """

    rename: Mapping[str, _NewName] = {}
    describe: Mapping[str, _Described] = {}
    hide: tuple[str, ...] = ()
    arguments: Mapping[str, Mapping[str, _Given]] = Field(default={}, repr=False)

    @model_validator(mode="after")
    def _renames_apart(self) -> Self:
        twice = next((name for name, count in Counter(self.rename.values()).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"'rename' calls two things {twice!r}")
        return self

    def __bool__(self) -> bool:
        return bool(self.rename or self.describe or self.hide or self.arguments)

    def hides(self, name: str) -> bool:
        """Return whether the server's tool, prompt or URI of this name is hidden."""
        return may_fit(name, self.hide)

    def public(self, name: str) -> str:
        """Return the clients' name for the server's own."""
        return self.rename.get(name, name)

    def own(self, public: str) -> str | None:
        """Return the server's name for the clients' name; None without one.

        A new name means what it was given to, whatever else the server may call so.
        """
        name = next((name for name, new in self.rename.items() if new == public), None)
        if name is None and public not in self.rename:
            name = public
        return None if name is None or self.hides(name) else name


NO_OVERRIDES: Final = ServerOverrides()
OVERRIDE_KEYS: Final = frozenset(ServerOverrides.model_fields)
