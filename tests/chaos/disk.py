"""A small file system of its own, which can be full."""

import errno
import os
import subprocess
from pathlib import Path

_SIZE_MB = 288
_BALLAST = "ballast"
_PAGE = 4096


class Disk:
    """A tmpfs at `folder`; needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def __enter__(self) -> "Disk":
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_MB}m,mode=0700", "tmpfs", str(self.folder)]
        subprocess.run(command, check=True, capture_output=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)

    def fill(self) -> None:
        """Leave no page, whoever else is writing."""
        ballast = os.open(self.folder / _BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        size = 1 << 22
        while size >= _PAGE:
            try:
                os.write(ballast, bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
        os.close(ballast)

    def empty(self) -> None:
        (self.folder / _BALLAST).unlink(missing_ok=True)


def can_mount() -> bool:
    """Whether this process may make such a disk."""
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0
    )
