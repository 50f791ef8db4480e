"""How the processes of a run meet: a part of torchrun's store that is theirs alone.

torchrun keeps one store while it starts its processes again, in which the addresses of those that
are gone remain (torch 2.13, `DynamicRendezvousHandler`, which shares its server): a process that
reads one waits for the dead. Nothing in its environment tells one start from the next on all
machines.
"""

import secrets
import time
from datetime import timedelta

from torch import distributed as dist

_SECONDS_BETWEEN_LOOKS = 0.05
_TIMEOUT = timedelta(minutes=10)


def join_store(rank: int, size: int) -> dist.Store:
    """Return a store that only the processes that are alive now know.

    The first process draws its name. Each other one asks under a word of its own, which the first
    answers with the name; only who has heard it confirms, so that the first knows when all have.

    Raises:
        ConnectionError: a process has not come within ten minutes.
    """
    store, _, _ = next(dist.rendezvous("env://", rank, size, timeout=_TIMEOUT))
    name = secrets.token_hex(8) if rank == 0 else _ask_name(store, rank)
    store.set(f"unmask/{name}/{rank}", "here")
    if rank == 0:
        _answer(store, name, size)
    return dist.PrefixStore(f"unmask/{name}", store)


def _ask_name(store: dist.Store, rank: int) -> str:
    word = secrets.token_hex(8)
    store.set(f"unmask/asking/{rank}", word)
    return store.get(f"unmask/answer/{word}").decode()


def _answer(store: dist.Store, name: str, size: int) -> None:
    """Tell the name to whoever asks, until all have confirmed it."""
    end = time.monotonic() + _TIMEOUT.total_seconds()
    missing = set(range(1, size))
    while missing:
        for rank in sorted(missing):
            if store.check([f"unmask/{name}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"unmask/asking/{rank}"]):
                word = store.get(f"unmask/asking/{rank}").decode()
                store.set(f"unmask/answer/{word}", name)
        if missing and time.monotonic() > end:
            raise ConnectionError(f"processes {sorted(missing)} of {size} have not come")
        if missing:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
