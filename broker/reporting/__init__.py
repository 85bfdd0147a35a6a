"""Reports of the broker over HTTP: the metrics page for Prometheus, and the pages for health checks."""
