"""verl 0.9.1 with Megatron-Core, driven by a plan. Everything that knows verl's internals is in this package.

Nothing here imports verl when the package is imported: processes that need only a part (a rollout server, a router) start fast.
"""
