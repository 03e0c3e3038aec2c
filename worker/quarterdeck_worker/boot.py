"""Enter a module of ours in an isolated interpreter: `python -I boot.py PATHS MODULE [ARG…]`.

Isolated means that neither the working directory nor PYTHONPATH is trusted, so the few directories that hold our
packages (an editable install has several) are named by whoever starts us.

The collector is off when the module begins: it looks at what imports made again and again, a tenth of their time, and
finds nothing.  A module that lives on turns it on.
"""

import gc
import os
import runpy
import sys

if __name__ == "__main__":
    gc.disable()
    folders, module = sys.argv[1:3]
    sys.path.extend(folder for folder in folders.split(os.pathsep) if folder not in sys.path)
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
