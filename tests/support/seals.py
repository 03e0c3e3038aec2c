"""Trees and manifests of seals, made for tests."""

import os
from collections.abc import Mapping
from pathlib import Path

from quarterdeck.seals.manifest import Manifest
from quarterdeck.seals.request import PackageIndex
from quarterdeck.seals.store import Seal, SealStore

FILES = {
    "node_modules/server/package.json": b"{}",
    "node_modules/server/bin.js": b"#!/usr/bin/env node\n",
    "node_modules/other/index.js": b"'other'",
}


def manifest(name: str = "server", version: str = "1.0.0") -> Manifest:
    return Manifest(index=PackageIndex.NPM, name=name, version=version, words=f"npx {name}")


def write(tree: Path, files: Mapping[str, bytes]) -> None:
    tree.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)


def sealed(store: SealStore, files: Mapping[str, bytes] = FILES, *, version: str = "1.0.0") -> Seal:
    with store.making() as place:
        write(place / "tree", files)
        os.chmod(place / "tree" / next(iter(files)), 0o755)
        return store.adopt(place, manifest(version=version))
