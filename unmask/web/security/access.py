"""Access to the workbench: a secret in the printed address, or a password, becomes a cookie."""

import hmac
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from unmask.files import write_atomically

_SECONDS_BETWEEN_PASSWORDS = 1.0


@dataclass
class Access:
    """The secret of a workbench, and the password that stands for it where there is one.

    The secret is kept beside the runs, readable by its owner alone, so that an open page goes on
    after the server was started again.
    """

    secret: str
    password: str | None = None
    _last_failure: float = -_SECONDS_BETWEEN_PASSWORDS

    @classmethod
    def of_folder(cls, folder: Path, password: str | None) -> "Access":
        """Read the secret of a folder, or make one."""
        path = folder / "secret"
        if not path.is_file() or len(path.read_text("ascii", errors="replace").strip()) < 32:
            write_atomically(path, secrets.token_urlsafe(32) + "\n")
        os.chmod(path, 0o600)
        return cls(path.read_text("ascii").strip(), password)

    def is_secret(self, text: str) -> bool:
        """Return whether a text is the secret, in a time that does not tell how near it is."""
        return hmac.compare_digest(text.encode(), self.secret.encode())

    def is_password(self, text: str) -> bool:
        """Return whether a text is the password; after a wrong one, a second must pass.

        Raises:
            PermissionError: another one was tried within the last second.
        """
        now = time.monotonic()
        if now - self._last_failure < _SECONDS_BETWEEN_PASSWORDS:
            raise PermissionError("a wrong password was tried a moment ago; wait a second")
        is_right = self.password is not None and hmac.compare_digest(
            text.encode(), self.password.encode()
        )
        if not is_right:
            self._last_failure = now
        return is_right
