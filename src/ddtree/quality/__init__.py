"""Are the answers still right: coding evaluation in a sandbox, greedy comparison with the baseline."""
