"""A session that changes files under checkpoints, and undoes some of it, without end: somebody kills it.

Arguments: the store's directory, the workspace, a seed.  A line on stdout for each change begun.
"""

import random
import sys
from pathlib import Path

import anyio

from quarterdeck.tools.checkpoint.store import FileCheckpointStore
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots


async def main(directory: Path, work: Path, chance: random.Random) -> None:
    """Work until killed."""
    store, fs = FileCheckpointStore(directory), LocalFs(Roots(work), str(work))
    while True:
        print("next", flush=True)
        path = work / chance.choice(["kept", "new", "other"])
        store.begin_node("write")
        await store.record(str(path), path.read_bytes() if path.exists() else None)
        await fs.write_file(str(path), chance.randbytes(chance.choice([10, 100_000])))
        if chance.random() < 0.3:
            await store.restore(chance.choice(await store.nodes()).name, fs)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]), random.Random(int(sys.argv[3])))
