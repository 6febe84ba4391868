"""The published experiments on the simulator, side by side with the published figures."""
