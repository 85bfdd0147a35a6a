"""What producer, consumer and admin client share: connections, API versions, the view of the cluster, retries."""
