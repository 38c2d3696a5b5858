"""A socket of our own servers: `listening_socket`."""

from __future__ import annotations

import socket

from calc.errors import InputError
from probes.processes import WINDOWS

LOOPBACK = "127.0.0.1"
WAITING = 128  # connections that may wait to be accepted


def listening_socket(port: int) -> socket.socket:
    """A listening socket on the loopback address; port 0: any that is free. Raises `InputError` where it is taken or no port."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if not WINDOWS:  # there it shares a port that is taken; elsewhere, one whose server has just ended
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        found.close()
        raise InputError(
            "--port", port, f"it must be free on {LOOPBACK}", next_step="Take another, or 0 for any."
        ) from error
    found.listen(WAITING)
    return found
