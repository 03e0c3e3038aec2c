"""Keyrings that tests can rely on: one in memory, and one of the `keyring` library's in a file, of a process's own."""

from pathlib import Path
from typing import Final

from quarterdeck.config.secrets.os_keyring import KeyringError

BACKEND: Final = '''
import json, os, time
from keyring.backend import KeyringBackend

class Ring(KeyringBackend):
    """Keeps its values in a file; hangs, or fails, when there is a file that says so."""

    priority = {priority}
    path = {path!r}

    def _values(self):
        if os.path.exists(self.path + ".hangs"):
            time.sleep(600)
        if os.path.exists(self.path + ".fails"):
            raise RuntimeError("locked, and the value was s3cret")
        print("noise on standard output")
        return json.load(open(self.path)) if os.path.exists(self.path) else {{}}

    def _keep(self, values):
        with open(self.path, "w") as file:
            json.dump(values, file)

    def get_password(self, service, name):
        return self._values().get(service + "/" + name)

    def set_password(self, service, name, value):
        self._keep({{**self._values(), service + "/" + name: value}})

    def delete_password(self, service, name):
        values = self._values()
        del values[service + "/" + name]
        self._keep(values)
'''


class MemoryKeyring:
    """Keeps values as long as it lives; refuses everything while `refusal` is set."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.refusal: KeyringError | None = None

    def get(self, name: str) -> str | None:
        """See `Keyring`."""
        self._check()
        return self.values.get(name)

    def set(self, name: str, value: str) -> None:
        """See `Keyring`."""
        self._check()
        self.values[name] = value

    def remove(self, name: str) -> None:
        """See `Keyring`."""
        self._check()
        self.values.pop(name, None)

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal


def install_keyring(folder: Path, priority: float = 5) -> dict[str, str]:
    """Make the library find a keyring in `folder/ring.json`; the variables of a process that is to use it."""
    (folder / "qd_test_ring.py").write_text(BACKEND.format(priority=priority, path=str(folder / "ring.json")))
    settings = folder / "cfg/python_keyring"
    settings.mkdir(parents=True)
    text = f"[backend]\ndefault-keyring=qd_test_ring.Ring\nkeyring-path={folder}\n"
    (settings / "keyringrc.cfg").write_text(text)
    return {"XDG_CONFIG_HOME": str(folder / "cfg")}
