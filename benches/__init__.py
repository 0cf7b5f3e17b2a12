"""Benches: one file a question, each answer a ratio measured in one run."""
