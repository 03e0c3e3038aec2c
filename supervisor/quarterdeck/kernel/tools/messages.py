"""How the file tools put names, sizes and failures in words.  Pure."""

from typing import Final

from quarterdeck.kernel.backends import BackendUnavailableError, OutsideRootsError

_CONTROLS: Final = {number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    **{number: f"\\u{number:04x}" for number in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))},
}
"""What would begin a line of its own, turn one around so that a name seems to be another, or do worse to a terminal."""

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def spell(name: str) -> str:
    """A path or a name on one line, read as it is: controls, and bytes that are no text, as escapes."""
    return name.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)


def count(number: int, noun: str, plural: str = "") -> str:
    """`number` and the noun that goes with it."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: int) -> str:
    """So many bytes, exactly, and above one KiB also roughly."""
    exact = count(number, "byte")
    power = (max(number, 1).bit_length() - 1) // 10
    if power == 0:
        return exact
    unit = _UNITS[min(power, len(_UNITS)) - 1]
    return f"{number / 1024 ** min(power, len(_UNITS)):.1f} {unit} ({exact})"


def explain(error: OSError | ValueError, path: str) -> str:
    """Why the file tools cannot do what they were asked with `path`, and what may help."""
    name = spell(path)
    match error:
        case OutsideRootsError() | BackendUnavailableError():
            return spell(error.strerror or str(error))
        case FileNotFoundError():
            return f"{name} does not exist. Look for it with ls or find."
        case NotADirectoryError():
            return f"{name}: a part of this path is not a directory."
        case IsADirectoryError():
            return f"{name} is a directory, not a file. Use ls to see what is in it."
        case OSError(strerror=str(reason)) if reason:
            return f"{name}: {spell(reason[0].lower() + reason[1:])}."
        case ValueError():
            return f"{name} cannot be a path: {spell(str(error))}."
        case _:
            return f"{name}: {spell(str(error)) or type(error).__name__}."
