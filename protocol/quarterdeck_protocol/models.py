"""What every model that a user writes is made of: closed, immutable, and quiet about values.  Pure."""

import difflib
import posixpath
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which a process cannot be given")
    return text


def _variable_name(text: str) -> str:
    if not text or "=" in text:
        raise ValueError("a variable's name must not be empty or contain '='")
    return text


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("is not an absolute path: it must start with '/'")
    # POSIX leaves two leading slashes to the system; here they are one.
    return "/" + posixpath.normpath(path).lstrip("/")


Text = Annotated[str, AfterValidator(_without_nul)]
"""What a process can be given."""

VariableName = Annotated[Text, AfterValidator(_variable_name)]
"""The name of an environment variable."""

AbsolutePath = Annotated[Text, AfterValidator(_absolute)]
"""Normalised as text: links are not followed."""


class FrozenModel(BaseModel):
    """Immutable, closed; an unknown key is an error that names the nearest known one, and no error shows a value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(cls.model_fields)}"
                    raise ValueError(f"unknown key {key!r}: {hint}")
        return data
