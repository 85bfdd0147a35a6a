"""Kafka's metrics of the cleaner, from the cleaner's state."""

from pathlib import Path

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.reporting.log_families import log_families
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from tests.storage.payloads import append


def values_of(broker: Broker) -> dict[str, float]:
    """Return the value of each metric; those with labels have one log directory here."""
    return {
        family.name.removeprefix("kafka_log_"): sample
        for family in log_families(broker.services)
        for _, sample in family.samples
    }


def test_cleaner_metrics_report_a_finished_and_a_failed_compaction(tmp_path: Path) -> None:
    clock = ManualClock(100_000)
    broker = Broker(BrokerConfig(log_dirs=(str(tmp_path),)), clock)
    broker.services.logs.open_all()
    assert set(values_of(broker).values()) == {0}
    log = broker.services.logs.create(
        "topic", 0, config=LogConfig(cleanup_policy="compact", max_compaction_lag_ms=10_000)
    )
    for number in range(10):
        append(log, b"%d" % number, timestamp=number)
    log.roll()
    job = broker.services.logs.begin_compaction()
    assert job is not None
    job.run()
    assert broker.services.logs.cleaner.finish(job)
    clock.advance(5)
    values = values_of(broker)
    assert values["logcleanermanager_max_dirty_percent"] == 100
    assert values["logcleanermanager_time_since_last_run_ms"] == 5
    assert 0 < values["logcleaner_cleaner_recopy_percent"] < 20
    assert 0 < values["logcleaner_max_buffer_utilization_percent"] < 1
    assert values["logcleaner_max_compaction_delay_secs"] == 90
    assert values["logcleanermanager_uncleanable_partitions_count"] == 0
    append(log, b"new")
    log.roll()
    failed = broker.services.logs.begin_compaction()
    assert failed is not None
    broker.services.logs.cleaner.fail(failed, OSError("no space"))
    values = values_of(broker)
    assert values["logcleanermanager_uncleanable_partitions_count"] == 1
    assert values["logcleanermanager_uncleanable_bytes"] == log.size_bytes
    broker.services.logs.close()
