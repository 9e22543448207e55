"""Messages over a socket: what arrives, what is dropped, and when waiting ends."""

import socket
import threading

import pytest

from deepbench.measure.wire import Connection


@pytest.fixture
def ends():
    """The connection under test, and the raw socket at its other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Connection(ours, longest_bytes=1000), theirs


def test_messages_arrive_in_order_however_they_are_cut(ends):
    connection, other = ends
    for part in (b'{"a": 1}\n{"b"', b": 2}\n", b'{"c": 3}\n'):
        other.sendall(part)

    assert [{"a": 1}, {"b": 2}, {"c": 3}] == [connection.receive(5.0) for _ in range(3)]


def test_a_message_is_received_as_it_was_sent(ends):
    connection, other = ends
    message = {"text": "ü\n\x1b", "list": [1, 2.5, None], "nested": {"a": True}}
    Connection(other).send(message)

    assert message == connection.receive(5.0)


@pytest.mark.parametrize("line", [b"warning: not JSON", b"[1]", b"\xff\xfe", b'{"a": NaN}', b"[" * 500, b"x" * 5000])
def test_a_line_that_is_no_message_is_dropped(ends, line):
    connection, other = ends
    other.sendall(line + b"\n" + b'{"a": 1}\n')

    assert {"a": 1} == connection.receive(5.0)


def test_a_line_without_an_end_does_not_fill_the_memory(ends):
    connection, other = ends
    other.sendall(b"x" * 50_000)

    with pytest.raises(TimeoutError):
        connection.receive(0.05)
    assert len(connection._incomplete) <= 1000


def test_a_closed_connection_gives_none_after_its_last_message(ends):
    connection, other = ends
    other.sendall(b'{"a": 1}\n{"torn')
    other.close()

    assert [{"a": 1}, None] == [connection.receive(5.0), connection.receive(5.0)]


def test_garbage_is_no_sign_of_life(ends):
    """The time-out counts from the last message, however many other bytes arrive."""
    connection, other = ends
    stop = threading.Event()

    def write():
        while not stop.wait(0.02):
            other.sendall(b"garbage\n")

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(TimeoutError):
        connection.receive(0.3)
    stop.set()
    writer.join()


def test_numbers_that_json_does_not_have_are_refused(ends):
    with pytest.raises(ValueError, match="JSON"):
        ends[0].send({"a": float("nan")})
