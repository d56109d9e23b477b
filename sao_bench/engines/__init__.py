"""Engines: what samples tokens. One file = one engine."""
