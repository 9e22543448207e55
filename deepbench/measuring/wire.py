"""Messages between processes: one JSON object per line over a socket, and proof that the other end knows a secret."""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import select
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Literal

from deepbench.core.json_lines import from_line, to_line
from deepbench.measuring import awake

Message = dict[str, Any]

# Longer than any message: a record has some 100 kB, and what all ranks of a large group gathered some 10 MB.
LONGEST_BYTES = 2**28

CHUNK_BYTES = 2**20

# Each end of a connection first sends a random number (nonce) and a proof. Nothing else is read before the proof.
NONCE_BYTES = PROOF_BYTES = 32

# How long a connection may stay open without a proof.
PROOF_S = 10.0

# How many connections without a proof may be open, besides those that are expected.
MOST_STRANGERS = 16

# How long to wait before another try where strangers took the place.
RETRY_S = 0.05


class Connection:
    """One end of a socket that carries messages.

    Lines that are not a JSON object, or that are too long, are dropped: libraries may write to any descriptor.
    """

    def __init__(self, stream: socket.socket, longest_bytes: int = LONGEST_BYTES, session_key: str = "") -> None:
        self.stream = stream
        self.session_key = session_key
        """Known to both ends only, if they have proven that they know a secret; else empty."""
        self._longest_bytes = longest_bytes
        self._incomplete = bytearray()
        self._received: deque[Message] = deque()

    def send(self, message: Message) -> None:
        """Send one message; `OSError` when the other end is gone, `ValueError` for NaN or infinity."""
        self.stream.sendall(to_line(message).encode(errors="replace"))

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """Wait for the next message. None: the other end is gone. `TimeoutError` after so many seconds of `awake`."""
        if timeout_s is None:
            self.stream.settimeout(None)
            while not self._received:
                if not self._read():
                    return None
            return self._received.popleft()
        deadline = awake.now() + timeout_s
        while not self._received:
            left_s = deadline - awake.now()
            if left_s <= 0:
                raise TimeoutError("no complete message came in time")
            step_s = awake.step(left_s, timeout_s)
            self.stream.settimeout(step_s)
            with contextlib.suppress(TimeoutError), awake.waiting(step_s):
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


# ---- proof that the other end knows a secret


class AuthenticationError(ConnectionError):
    """The other end of a connection does not know the secret."""


class Handshake:
    """Proves to both ends of a new connection that the other one knows a secret, which is never sent.

    Both send a random number. Then the client, and after it the server, sends the HMAC-SHA256 of its role and both
    numbers. An old proof fits no new numbers, and the proof of one role is none for the other.
    """

    def __init__(self, stream: socket.socket, secret: str, role: Literal["client", "server"]) -> None:
        self.stream = stream
        self._secret, self._role = os.fsencode(secret), role
        self._nonce, self._received = os.urandom(NONCE_BYTES), b""
        stream.setblocking(False)
        self._send(self._nonce)

    def proceed(self) -> bool:
        """Read what has come, without waiting: whether both have their proof.

        `AuthenticationError` if the other end's is wrong, another `OSError` if it is gone.
        """
        had = len(self._received)
        try:
            chunk = self.stream.recv(NONCE_BYTES + PROOF_BYTES - had)
        except BlockingIOError:
            return False
        if not chunk:
            raise ConnectionResetError("the other end closed the connection before its proof")
        self._received += chunk
        if self._role == "client" and had < NONCE_BYTES <= len(self._received):
            self._send(self._digest("client"))
        if len(self._received) < NONCE_BYTES + PROOF_BYTES:
            return False
        is_right = hmac.compare_digest(
            self._received[NONCE_BYTES:], self._digest("server" if self._role == "client" else "client")
        )
        if self._role == "server":  # zeros tell a client of ours that it has another secret
            self._send(self._digest("server") if is_right else bytes(PROOF_BYTES))
        if not is_right:
            raise AuthenticationError("the other end does not know the secret")
        return True

    def connection(self, longest_bytes: int = LONGEST_BYTES) -> Connection:
        """The connection for messages, after both have their proof."""
        self.stream.settimeout(None)
        return Connection(self.stream, longest_bytes, self._digest("session").hex())

    def _digest(self, purpose: str) -> bytes:
        numbers = [self._nonce, self._received[:NONCE_BYTES]]
        client, server = numbers if self._role == "client" else reversed(numbers)
        return hmac.digest(self._secret, purpose.encode() + client + server, "sha256")

    def _send(self, data: bytes) -> None:
        if self.stream.send(data) != len(data):  # 64 bytes always fit
            raise ConnectionResetError("the connection takes no data")


def connect(address: tuple[str, int], secret: str, timeout_s: float) -> Connection:
    """Connect to a `Listener` with the same secret, in at most `timeout_s` seconds for everything.

    `AuthenticationError` if it has another secret, another `OSError` if it does not answer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        stream = socket.create_connection(address, timeout=max(1e-3, deadline - time.monotonic()))
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshake, poll = Handshake(stream, secret, "client"), select.poll()
            poll.register(stream, select.POLLIN)
            while not handshake.proceed():
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not poll.poll(1e3 * left_s):
                    raise TimeoutError("the other end did not prove in time that it knows the secret")
            return handshake.connection()
        except (ConnectionResetError, BrokenPipeError):  # there were too many strangers
            stream.close()
            if time.monotonic() + RETRY_S > deadline:
                raise
            time.sleep(RETRY_S)
        except BaseException:
            stream.close()
            raise


class Listener:
    """Accepts connections whose other end knows a secret. It never waits, whatever strangers do.

    A selector can wait for it. Connections without a proof are closed after `PROOF_S` seconds. If there are more than
    `most`, the oldest one is closed: a new one may be expected.
    """

    def __init__(
        self, sockets: Iterable[socket.socket], secret: str, expected: int, longest_bytes: int = LONGEST_BYTES
    ) -> None:
        """Take over sockets that listen. `expected`: how many connections may come at the same time."""
        self.refused = 0
        """How many connections have been closed because they had another secret."""
        self._secret, self._most, self._longest_bytes = secret, expected + MOST_STRANGERS, longest_bytes
        self._deadlines: dict[Handshake, float] = {}
        """When each connection without a proof is closed, the oldest first."""
        self._selector = selectors.EpollSelector()
        self._sockets = list(sockets)
        for one in self._sockets:
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """What a selector waits for."""
        return self._selector.fileno()

    @property
    def timeout_s(self) -> float | None:
        """How long a selector may wait before `accept` has to close a connection."""
        return max(0.0, next(iter(self._deadlines.values())) - time.monotonic()) if self._deadlines else None

    def accept(self) -> Connection | None:
        """Go on with what has come since; a connection that has just proven that it knows the secret."""
        while self.timeout_s == 0:
            self._drop_oldest()
        for key, _ in self._selector.select(0):
            if key.data is None:
                self._admit(key.fileobj)
                continue
            handshake: Handshake = key.data
            if handshake in self._deadlines and self._has_proof(handshake):
                self._forget(handshake)
                return handshake.connection(self._longest_bytes)
        return None

    def close(self) -> None:
        """Stop listening, and close the connections that have not proven anything."""
        while self._deadlines:
            self._drop_oldest()
        for one in self._sockets:
            one.close()
        self._selector.close()

    def _admit(self, listening: Any) -> None:
        """Accept a connection, and begin its handshake."""
        try:
            stream, _ = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                if not self._deadlines:
                    time.sleep(RETRY_S)  # the connection keeps waiting, and would wake the selector again at once
                while self._deadlines:  # this process may need descriptors for something else
                    self._drop_oldest()
            return
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshake = Handshake(stream, self._secret, "server")
        except OSError:
            stream.close()
            return
        if len(self._deadlines) >= self._most:
            self._drop_oldest()
        self._selector.register(stream, selectors.EVENT_READ, handshake)
        self._deadlines[handshake] = time.monotonic() + PROOF_S

    def _has_proof(self, handshake: Handshake) -> bool:
        """Whether it is complete. A connection without the secret is closed."""
        try:
            return handshake.proceed()
        except OSError as error:
            self.refused += isinstance(error, AuthenticationError)
            self._forget(handshake)
            handshake.stream.close()
            return False

    def _drop_oldest(self) -> None:
        handshake = next(iter(self._deadlines))
        self._forget(handshake)
        handshake.stream.close()

    def _forget(self, handshake: Handshake) -> None:
        self._selector.unregister(handshake.stream)
        del self._deadlines[handshake]
