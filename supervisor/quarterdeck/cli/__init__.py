"""The command line: `commands.ENTRIES` lists every command, with its module; a folder holds one group of them.

Importing this loads nothing: each command pays for what it uses.
"""

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the program; its entry point."""
    if sys.platform == "win32":
        sys.stderr.write(
            "quarterdeck needs Linux or macOS: on Windows, install and run it inside WSL (wsl --install)\n"
        )
        sys.exit(2)
    # Past the front door, which loads more of the standard library: `sys.path` may begin with a stranger's folder.
    from quarterdeck.common.working_directory import working_directory
    from quarterdeck_sandbox.view.own_code import own_path

    sys.path[:] = own_path(sys.path, working_directory())
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # pydantic would look for them in every installed package
    from . import process

    serves = process.is_serve(sys.argv[1:])
    if serves:
        gc.disable()  # until it serves, see `collect_rarely`
    process.end_at_once(serves=serves)
    process.secure_streams()
    if serves:
        from quarterdeck.host.stdio.client_streams import expect_client, refuse_waiting_client

        if process.serves_itself(sys.argv[1:]):
            expect_client()
    from .program import run, warm_up

    if serves:
        warm_up(sys.argv[1:])
    try:
        process.unwind(serves=serves)
        code = run(sys.argv[1:])
    except process.InterruptedBySignal as end:
        code = process.exit_code(end.number, serves=serves)
    process.end_at_once(serves=serves, code=code)
    if serves:
        refuse_waiting_client("stopped by a signal before it started")
    sys.exit(code)
