"""DeepBench: how fast do hardware and libraries run the basic operations of deep learning?"""

__version__ = "0.1.0"
