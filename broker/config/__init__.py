"""Configuration: one table of keys behind parsing, help, DescribeConfigs and ``config/server.properties``."""

from .broker_config import BrokerConfig
from .keys import ConfigError

__all__ = ["BrokerConfig", "ConfigError"]
