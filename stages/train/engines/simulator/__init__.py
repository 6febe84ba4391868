"""The simulator: plays a plan event by event on a cluster that is described, not at hand.

It shares with the cost model what a layer computes and moves (``artifacts/model_spec``) and nothing of how times add up.
"""
