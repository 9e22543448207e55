"""Gloo's store: where it listens. Without PyTorch, so its store is a stand-in with the same arguments."""

import socket
from types import SimpleNamespace

import pytest

from deepbench.backends.gloo import Gloo

pytestmark = [pytest.mark.programs, pytest.mark.torch]


class Store:
    """What `torch.distributed.TCPStore` does with these arguments, as far as sockets are concerned."""

    made = ()

    def __init__(self, host, port, *, timeout, wait_for_workers, is_master, use_libuv=True, master_listen_fd=None):
        self.host, self.port = host, port
        self.listens_at = None
        if is_master:
            assert not use_libuv  # only the older server takes a socket in every version
            self.socket = socket.socket(fileno=master_listen_fd)
            self.listens_at = self.socket.getsockname()
        Store.made = (*Store.made, self)


def test_the_store_listens_at_the_address_of_its_rank_only():
    gloo, told = Gloo(), []
    gloo.distributed = SimpleNamespace(TCPStore=Store, init_process_group=lambda *_, **facts: told.append(facts))
    serving = SimpleNamespace(rank=0, ranks=2, address="127.0.0.1", gather=lambda value: [value, None])
    gloo.join(serving, None)
    (store,) = Store.made
    other = SimpleNamespace(
        rank=1, ranks=2, address="127.0.0.1", gather=lambda value: [["127.0.0.1", store.port], value]
    )
    gloo.join(other, None)

    assert ("127.0.0.1", store.port) == store.listens_at
    assert ("127.0.0.1", store.port, None) == (Store.made[1].host, Store.made[1].port, Store.made[1].listens_at)
    assert [0, 1] == [facts["rank"] for facts in told]
    store.socket.close()
