"""Memory of freed arrays: have the C library keep it for later arrays.

A kernel allocates what it returns where only a run knows the shapes. The system clears new memory page by page, which
may take longer than the kernel.
"""

import numpy as np

_LARGEST = 31 << 20
"""Bytes of the array that is freed: glibc learns from no chunk above 32 MiB."""


def keep_freed_memory() -> None:
    """Let glibc take arrays of up to 31 MiB from its heap, and return to the system only what it has free above 62 MiB.

    glibc raises both thresholds once such an array is freed (``M_MMAP_THRESHOLD`` in mallopt(3)), unless the
    environment sets them. No page of the array is touched. Other C libraries do nothing.
    """
    np.empty(_LARGEST, np.uint8)


keep_freed_memory()
