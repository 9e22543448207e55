"""What is computed from the records of applications: convergence, rates, references, pairs, latencies."""
