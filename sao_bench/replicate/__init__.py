"""The replication card: does what a paper claims hold at this scale? Claims, plan, runs, verdicts."""
