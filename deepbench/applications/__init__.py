"""A wing: applications that are trained to a given accuracy and answer queries. Its door is `api.py`."""
