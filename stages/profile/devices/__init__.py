"""Which devices this machine has: NVIDIA's GPUs through NVML, AMD's through amdsmi, or its CPU in equal shares."""
