"""The barrel of the package."""

import subprocess
import sys

import quarterdeck.config


def test_every_public_name_resolves() -> None:
    """An import that the documentation shows would fail."""
    assert all(getattr(quarterdeck.config, name) for name in quarterdeck.config.__all__)
    assert not hasattr(quarterdeck.config, "nonsense")


def test_importing_the_barrel_loads_nothing_heavy() -> None:
    """Every command would take as long to start as the slowest library."""
    program = (
        "import sys, quarterdeck.config; print({'pydantic', 'platformdirs', 'msgspec', 'dotenv'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "set()\n"
