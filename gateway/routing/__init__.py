"""One address for a whole cluster: requests are split by leaders and coordinators, and their answers merged."""
