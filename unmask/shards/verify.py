"""Whether shards are as they were written, found out while other work continues.

Reading them all costs a second for 2 GB of a disk that keeps up, which no run shall wait for; but
before anything is saved that was learned of them, it must be known.
"""

import threading
from types import TracebackType

from unmask.shards.read import TokenShards


class ShardVerifier:
    """Compares all files of some shards with their checksums, in a thread of its own.

    Of remote shards it compares those that were read, by what the storage says of them.

    ```python
    with ShardVerifier(shards) as intact:
        ...  # work that reads them
        intact.wait()  # ValueError: one is damaged
        ...  # save what came of it
    ```
    """

    def __init__(self, shards: TokenShards) -> None:
        self._shards = shards
        self._damage: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._compare, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all is compared.

        Raises:
            ValueError: a file is not as it was written, or cannot be read; it is named.
        """
        self._thread.join()
        if self._damage is not None:
            raise ValueError(self._damage)
        self._shards.check_unchanged()

    def __enter__(self) -> "ShardVerifier":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _compare(self) -> None:
        self._damage = self._shards.find_damage(self._stopped)
