"""Messages over a socket: what arrives, what is dropped, when waiting ends, and who may send any."""

import contextlib
import select
import socket
import subprocess
import sys
import threading
import time

import pytest

from deepbench.measuring import wire
from deepbench.measuring.wire import AuthenticationError, Connection, Listener, connect
from tests.conftest import ROOT

pytestmark = pytest.mark.programs

SECRET = "what the ranks know"


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


def test_waiting_ends_at_its_deadline_although_there_is_more_to_read(ends, monkeypatch):
    connection, other = ends
    monkeypatch.setattr(wire, "CHUNK_BYTES", 1)
    other.sendall(b"x" * 100_000)
    with pytest.raises(TimeoutError):
        connection.receive(0.005)

    connection.stream.setblocking(False)
    assert b"x" == connection.stream.recv(1)


class Server:
    """A listener that accepts in a thread, as an event loop would."""

    def __init__(self, expected=2):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address = self.socket.getsockname()
        self.listener = Listener([self.socket], SECRET, expected)
        self.accepted = []
        self.most_open = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        while not self._stop.is_set():
            select.select([self.listener], [], [], 0.02)
            if (connection := self.listener.accept()) is not None:
                self.accepted.append(connection)
            self.most_open = max(self.most_open, len(self.listener._deadlines))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.listener.close()
        for connection in self.accepted:
            connection.close()


@pytest.fixture
def server():
    with Server() as running:
        yield running


def ends_of(server):
    """A client's connection, and the server's end of it."""
    client = connect(server.address, SECRET, 5.0)
    _until(lambda: server.accepted)
    return client, server.accepted.pop()


def _until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def received(stream):
    """Everything that the other end sends until it closes; it may leave unread what we sent."""
    data = b""
    stream.settimeout(5.0)
    with contextlib.suppress(ConnectionResetError):
        while chunk := stream.recv(4096):
            data += chunk
    return data


def test_ends_that_know_the_secret_exchange_messages_and_share_a_key(server):
    client, end = ends_of(server)
    with contextlib.closing(client), contextlib.closing(end):
        client.send({"a": 1})
        end.send({"b": 2})

        assert ({"a": 1}, {"b": 2}) == (end.receive(5.0), client.receive(5.0))
        assert client.session_key == end.session_key
        assert 64 == len(client.session_key)


def test_each_connection_has_another_key(server):
    keys = set()
    for _ in range(3):
        client, end = ends_of(server)
        keys.add(client.session_key)
        client.close()
        end.close()

    assert 3 == len(keys)


def test_a_client_with_another_secret_is_told_at_once(server):
    start = time.monotonic()
    with pytest.raises(AuthenticationError):
        connect(server.address, "another secret", 5.0)

    assert time.monotonic() - start < 2.0
    _until(lambda: server.listener.refused == 1)
    assert [] == server.accepted


def test_the_secret_is_never_sent_and_an_old_proof_is_refused(server):
    sent, answered = [], []
    with socket.create_server(("127.0.0.1", 0)) as relay:

        def pass_on():
            inner, _ = relay.accept()
            with inner, socket.create_connection(server.address) as outer:
                for source, target, log in ((inner, outer, sent), (outer, inner, answered)) * 2:
                    data = source.recv(32, socket.MSG_WAITALL)
                    log.append(data)
                    target.sendall(data)

        passing = threading.Thread(target=pass_on)
        passing.start()
        client = connect(relay.getsockname(), SECRET, 5.0)
        passing.join()
        client.close()
    _until(lambda: server.accepted)
    assert [32] * 4 == [len(part) for part in sent + answered]
    assert SECRET.encode() not in b"".join(sent + answered)

    with socket.create_connection(server.address) as replay:
        replay.sendall(b"".join(sent))
        assert bytes(32) == received(replay)[32:]
    assert 1 == server.listener.refused
    assert 1 == len(server.accepted)


def test_a_client_that_sends_back_what_it_receives_is_refused(server):
    with socket.create_connection(server.address) as mirror:
        nonce = mirror.recv(32, socket.MSG_WAITALL)
        mirror.sendall(nonce + nonce)

        assert bytes(32) == received(mirror)
    assert [] == server.accepted


def test_a_server_that_sends_back_what_it_receives_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def mirror():
            with listening.accept()[0] as stream:
                for _ in range(2):
                    stream.sendall(stream.recv(32, socket.MSG_WAITALL))

        mirroring = threading.Thread(target=mirror)
        mirroring.start()
        with pytest.raises(AuthenticationError):
            connect(listening.getsockname(), SECRET, 5.0)
        mirroring.join()


def test_a_slow_server_does_not_hold_a_client_beyond_its_deadline():
    """One byte at a time is never silence, but the deadline is for everything."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip():
            with listening.accept()[0] as stream, contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    stream.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            connect(listening.getsockname(), SECRET, 0.5)
        took = time.monotonic() - start
        stop.set()
        dripping.join()
    assert took < 1.5


def test_slow_and_silent_strangers_delay_nobody_and_are_closed(server, monkeypatch):
    monkeypatch.setattr(wire, "PROOF_S", 0.6)
    strangers = [socket.create_connection(server.address) for _ in range(6)]
    start = time.monotonic()
    for number in range(12):
        for stranger in strangers[:3]:  # the others are silent
            with contextlib.suppress(OSError):
                stranger.sendall(b"x")
        if number in (1, 4):
            begun = time.monotonic()
            client, end = ends_of(server)
            assert time.monotonic() - begun < 0.5
            client.close()
            end.close()
        time.sleep(0.05)
    for stranger in strangers:
        assert 32 == len(received(stranger))  # the server's random number, then the end
        stranger.close()
    assert time.monotonic() - start < 4.0


def test_strangers_that_never_stop_sending_are_closed_after_the_bytes_of_a_proof(server):
    with socket.create_connection(server.address) as stranger:
        stranger.settimeout(5.0)
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                stranger.sendall(bytes(2**20))
    client, end = ends_of(server)
    client.close()
    end.close()


def test_a_crowd_of_strangers_gives_way_to_who_knows_the_secret(server):
    crowd = []
    for _ in range(60):
        crowd.append(socket.create_connection(server.address))
    client, end = ends_of(server)

    assert 2 + wire.MOST_STRANGERS == server.most_open
    for stream in (*crowd, client, end):
        stream.close()


CROWDED = """
import resource, sys
from tests.measuring.test_wire import Server, _until
held = [open("/dev/null") for _ in range(int(sys.argv[1]))]
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
with Server() as server:
    print(server.address[1], flush=True)
    sys.stdin.readline()
    _until(lambda: server.accepted)
    print(server.accepted[0].receive(5.0), server.most_open, flush=True)
"""


@pytest.mark.parametrize("held", [0, 24])
def test_two_thousand_connections_do_not_exhaust_descriptors(held):
    """With `held` others in use, there are fewer descriptors than strangers may have."""
    with subprocess.Popen(
        [sys.executable, "-c", CROWDED, str(held)], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        address, crowd = ("127.0.0.1", int(process.stdout.readline())), []
        for _ in range(2000):
            crowd.append(socket.create_connection(address))
            if len(crowd) > 200:
                crowd.pop(0).close()
        client = connect(address, SECRET, 10.0)
        client.send({"a": 1})
        told = process.communicate("go\n", timeout=30)[0]
    for stream in (*crowd, client):
        stream.close()

    assert told.startswith("{'a': 1} ")
    assert int(told.split()[-1]) <= 2 + wire.MOST_STRANGERS
