"""GPUs through the C libraries of their vendors. One table of functions serves CUDA and HIP."""
