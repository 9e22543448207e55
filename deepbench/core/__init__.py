"""The types that everything shares: problems, operations, backends, kernels, cases, precisions, units, statistics."""
