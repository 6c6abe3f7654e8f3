"""The numbers of a worker's descriptors."""

from __future__ import annotations

# In this order the kernel, which lets the last of a dying process's descriptors go first, frees the
# lock before the channel ends. Nothing rests on it: who finds the lock held looks again.
CHANNEL_FD = 3  # the worker's end of its channel to the supervisor
LOG_FD = 4  # the locked run log
LAST_FD = max(CHANNEL_FD, LOG_FD)
