"""Metrics of jobs and of streaming queries for Prometheus, served by the driver."""
