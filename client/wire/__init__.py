"""The shared parts of producer, consumer and admin client: connections, API versions, the cluster's metadata,
retries.
"""
