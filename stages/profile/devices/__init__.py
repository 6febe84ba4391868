"""Which devices this machine has: NVIDIA GPUs through NVML, or its CPU in equal shares."""
