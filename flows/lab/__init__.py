"""A heterogeneous cluster on one machine: containers with CPU quotas and memory limits, and links with a delay and a bandwidth."""
