"""GPUs through the C libraries of their makers: one table of functions serves CUDA and HIP."""
