"""What the demo and the scenario tests share: a cluster, what runs on it, the results, the truth."""
