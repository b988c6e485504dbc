"""Build the programs of a training once for all its simulated ranks."""

from functools import lru_cache, wraps
from threading import Lock


def built_once(build):
    """Decorate a function that builds programs: threads that give it equal arguments share what it returns.

    Simulated ranks run the same programs, and lowering one takes longer than the few steps of a test.
    Ranks in processes of their own, each of which builds its programs, are those of `test_launch.py`.
    """
    lock, kept = Lock(), lru_cache(maxsize=4)(build)

    @wraps(build)
    def shared(*args, **options):
        with lock:
            return kept(*args, **options)

    return shared
