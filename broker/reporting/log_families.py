"""The metrics of storage, by the names of `kafka.log:type=LogCleaner`, `LogCleanerManager` and `LogManager`."""

from __future__ import annotations

from collections.abc import Iterator

from ..api.services import Services
from ..monitoring.metrics import NO_LABELS, Family

MS_PER_S = 1000


def log_families(services: Services) -> Iterator[Family]:
    """Yield the counter of recompressed batches, and gauges of compaction: of its last check and its last run."""
    yield Family("gregor_recompressionsonappend_total", [(NO_LABELS, services.metrics.recompressions_on_append)])
    cleaner = services.logs.cleaner
    facts, last = cleaner.facts, cleaner.facts.last
    for name, value in (
        ("logcleanermanager_max_dirty_percent", 100 * facts.max_dirty_ratio),
        ("logcleanermanager_time_since_last_run_ms", services.clock.now_ms() - facts.looked_at_ms),
        ("logcleaner_cleaner_recopy_percent", 100 * last.written_bytes / last.read_bytes if last.read_bytes else 0),
        ("logcleaner_max_buffer_utilization_percent", 100 * last.buffer_utilization),
        ("logcleaner_max_clean_time_secs", last.elapsed_s),
        ("logcleaner_max_compaction_delay_secs", facts.max_delay_ms / MS_PER_S),
        ("logcleaner_deadthreadcount", 0),
    ):
        yield Family(f"kafka_log_{name}", [(NO_LABELS, value)])
    offline = [
        ({"logDirectory": home.path}, int(home.health.failure is not None)) for home in services.logs.directories
    ]
    yield Family("kafka_log_logmanager_offlinelogdirectorycount", [(NO_LABELS, sum(value for _, value in offline))])
    yield Family("kafka_log_logmanager_logdirectoryoffline", offline)
    given_up = [({"logDirectory": home.path}, cleaner.uncleanable(home)) for home in services.logs.directories]
    counts = [(labels, found.partition_count) for labels, found in given_up]
    sizes = [(labels, found.size_bytes) for labels, found in given_up]
    yield Family("kafka_log_logcleanermanager_uncleanable_partitions_count", counts)
    yield Family("kafka_log_logcleanermanager_uncleanable_bytes", sizes)
