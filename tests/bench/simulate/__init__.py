"""A simulator of a partition: the real planner, and workers that are arithmetic.

    trace ──▶ world (time goes from event to event) ──▶ planner ──▶ fleet ──▶ report

``python -m tests.bench.simulate --help``; what it says of the rules is in docs/scheduling.md.
"""
