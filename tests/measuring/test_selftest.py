"""What a self-test measures besides its cases."""

from deepbench.measuring.selftest import block_times


def test_equal_blocks_take_similar_time():
    assert all(1e-5 < seconds < 1 for seconds in block_times(20, 1e-4))
