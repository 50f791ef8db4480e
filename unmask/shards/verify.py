"""Whether shards are as they were written, found out while other work continues.

Reading them all costs a second for 2 GB of a disk that keeps up, which no run shall wait for; but
before anything is saved that was learned of them, it must be known.
"""

import hashlib
import threading
from types import TracebackType

from unmask.shards.manifest import shard_path
from unmask.shards.read import TokenShards

_READ_BYTES = 2**23
"""Bytes that are read at once; other threads continue while they are hashed."""


class ShardVerifier:
    """Compares all files of some shards with their checksums, in a thread of its own.

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
        self._thread = threading.Thread(target=self._compare_checksums, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all is compared.

        Raises:
            ValueError: a file is not as it was written, or cannot be read; it is named.
        """
        self._thread.join()
        if self._damage is not None:
            raise ValueError(self._damage)

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

    def _compare_checksums(self) -> None:
        for index, shard in enumerate(self._shards.manifest.shards):
            for kind, file in (
                ("tokens", shard.tokens), ("marks", shard.marks), ("documents", shard.documents),
            ):  # fmt: skip
                path = shard_path(self._shards.folder, index, kind)
                digest = hashlib.sha256()
                try:
                    with path.open("rb") as data:
                        while (piece := data.read(_READ_BYTES)) and not self._stopped.is_set():
                            digest.update(piece)
                except OSError as error:
                    self._damage = f"{path}: cannot be read: {error.strerror}"
                    return
                if self._stopped.is_set():
                    return
                if digest.hexdigest() != file.sha256:
                    self._damage = (
                        f"{path}: damaged: it is not as it was written (its SHA-256 is "
                        f"{digest.hexdigest()}, expected {file.sha256}); nothing that was learned "
                        f"of it is saved; remove {self._shards.folder} and prepare the text again"
                    )
                    return
