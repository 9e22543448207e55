"""Messages between processes: one JSON object per line over a socket."""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import Any

from deepbench.core.json_lines import from_line, to_line

Message = dict[str, Any]

# Longer than any message: a record has some 100 kB, and what all ranks of a large group gathered some 10 MB.
LONGEST_BYTES = 2**28

CHUNK_BYTES = 2**20


class Connection:
    """One end of a socket that carries messages.

    Lines that are not a JSON object, or that are too long, are dropped: libraries may write to any descriptor.
    """

    def __init__(self, stream: socket.socket, longest_bytes: int = LONGEST_BYTES) -> None:
        self.stream = stream
        self._longest_bytes = longest_bytes
        self._incomplete = bytearray()
        self._received: deque[Message] = deque()

    def send(self, message: Message) -> None:
        """Send one message; `OSError` when the other end is gone, `ValueError` for NaN or infinity."""
        self.stream.sendall(to_line(message).encode(errors="replace"))

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """Wait for the next message. None: the other end is gone. `TimeoutError` after `timeout_s` seconds."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._received:
            self.stream.settimeout(None if deadline is None else max(1e-3, deadline - time.monotonic()))
            if not self._read():
                return None
        return self._received.popleft()

    def receive_available(self) -> list[Message] | None:
        """Read once, which waits only if there is nothing to read. None: the other end is gone."""
        if not self._read():
            return None
        messages = list(self._received)
        self._received.clear()
        return messages

    def close(self) -> None:
        """Close the socket."""
        self.stream.close()

    def _read(self) -> bool:
        """Whether anything came. `TimeoutError` after the socket's time-out."""
        try:
            chunk = self.stream.recv(CHUNK_BYTES)
        except TimeoutError:
            raise
        except OSError:
            return False
        self._incomplete += chunk
        if b"\n" in chunk:
            *lines, self._incomplete = self._incomplete.split(b"\n")
            self._received += filter(None, map(_message, lines))
        if len(self._incomplete) > self._longest_bytes:
            self._incomplete.clear()
        return bool(chunk)


def _message(line: bytearray) -> Message | None:
    try:
        value = from_line(bytes(line))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
