"""A wing: the same cases on many hosts, and the hosts that differ. Its door is `api.py`."""
