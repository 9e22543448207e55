"""MIOpen's data types and tensor descriptors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from deepbench.native.gpu.library import GpuBackend

# miopenDataType_t
TYPES = {"f16": 0, "f32": 1, "s32": 2, "s8": 3, "bf16": 5}


def tensor(backend: GpuBackend, type_name: str, sizes: Sequence[int], strides: Sequence[int]) -> ctypes.c_void_p:
    """A tensor descriptor; strides in elements."""
    descriptor, row = backend.create("miopenCreateTensorDescriptor"), ctypes.c_int * len(sizes)
    function = "miopenSetTensorDescriptor"
    backend.gpu.call(function, descriptor, TYPES[type_name], len(sizes), row(*sizes), row(*strides))
    return descriptor
