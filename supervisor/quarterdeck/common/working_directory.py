"""The working directory, which may have been removed.  Imports next to nothing: the command line needs it first."""

import os


def working_directory() -> str:
    """Our working directory; `/` when it is gone, or may not be looked up."""
    try:
        return os.getcwd()
    except OSError:
        return "/"
