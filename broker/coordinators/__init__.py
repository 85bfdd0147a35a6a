"""Coordinators: consumer groups, transactions, and the internal topics that keep the state of both."""
