/* Close parts of what a sandbox may write: read-only mounts in a mount namespace of its own, before the sandbox exists.

   Afterwards it becomes what builds the sandbox, which takes these mounts along, and cannot undo them: who is in a
   namespace of less privilege may not unmount what came with it, and no confined process may mount.

   - A file that is a mount point cannot be replaced, but a folder above it could be renamed, and another put in its
     place.  So every folder between is a mount point too: itself, mounted upon itself, as writable as before.
   - No link is followed (openat2), and what is mounted, and upon what, is the one thing that was opened: whoever swaps a
     folder meanwhile makes this fail, which starts nothing.
   - Older bubblewrap (before 0.12, CVE-2026-87766) follows links where it makes mount points below writable ones.  Here
     nothing is made, and it has to make none.

   Source: mount_setattr(2), open_tree(2), move_mount(2), openat2(2), user_namespaces(7). */

#ifndef QUARTERDECK_READONLY_H
#define QUARTERDECK_READONLY_H

#include "kernel.h"

/* Carry out the order that a descriptor holds, and become what it names; what fails is told on stderr. */
_Noreturn void readonly(long order_fd, char *const *environment);

#endif
