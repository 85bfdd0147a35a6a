"""What the broker reports over HTTP: the metrics page for Prometheus, and the pages for health checks."""
