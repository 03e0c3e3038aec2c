"""What runs inside a sandbox before the program does: standard library only, imported from its own folder.

Inside, nothing of us is installed; a bare interpreter is started on this folder, and the modules import each other by
their plain names.  Anything dear is imported only where it is needed.
"""
