"""Compile the gate, and the workers' library, where a wheel is built, which makes it a wheel for one platform; or where
a checkout is installed.

Where there is no C compiler, the package ziglang is one: the build requires it there, and there alone.  On a system
that has no gate, or where the compiler fails, the wheel is for all systems and has neither: nothing can be started in a
sandbox, and `quarterdeck doctor` says why.  With `QUARTERDECK_GATE=required` that is an error instead.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    from compile_gate import IN_CHECKOUT, PAGES_IN_CHECKOUT, NotBuiltError, compile_gate, compile_pages, requirements
finally:
    del sys.path[0]

IN_WHEEL: Final = "quarterdeck_sandbox/gate/quarterdeck-gate"
PAGES_IN_WHEEL: Final = "quarterdeck_worker/quarterdeck-pages.so"

TAG: Final = "py3-none-manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"
"""The program uses no library, so that it runs beside glibc and musl of any age."""


class GateHook(BuildHookInterface[Any]):
    """Adds both to a wheel; to an editable one by putting them into the checkout."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What a build requires, asked for before it (PEP 517)."""
        return requirements()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before files are collected; `version` is `editable` or `standard`."""
        try:
            if version == "editable":
                compile_gate(IN_CHECKOUT)
                compile_pages(PAGES_IN_CHECKOUT)
                return
            self._folder = tempfile.TemporaryDirectory(prefix="quarterdeck-gate-")
            place = Path(self._folder.name, "quarterdeck-gate")
            architecture = compile_gate(place, strict=_is_required())
            pages = place.with_name("quarterdeck-pages.so")
            compile_pages(pages, strict=_is_required())
        except NotBuiltError as error:
            if _is_required():
                raise
            self.app.display_warning(f"without a gate, so that nothing can be started: {error}")
            return
        build_data["force_include"] |= {str(place): IN_WHEEL, str(pages): PAGES_IN_WHEEL}
        build_data["pure_python"] = False
        build_data["tag"] = TAG.format(architecture)


def _is_required() -> bool:
    return os.environ.get("QUARTERDECK_GATE") == "required"
