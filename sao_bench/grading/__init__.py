"""Graders: typed maths answers, function tasks and repository tasks.

Every grader keeps the truth in this process: what a candidate writes runs in the sandbox, never sees an
expected value, and can only hand back data.
"""
