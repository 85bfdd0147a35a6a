"""The metadata log and its quorum of one voter: `kafka.server:type=raft-metrics` and what belongs to it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..api.services import Services
from ..metadata.log_pace import LogPace
from ..monitoring.metrics import NO_LABELS, Family
from ..monitoring.request_conversions import QUANTILES, quantile
from ..peers.peer_connection import Traffic

NO_VOTE = -1
LEADER, OBSERVER = "leader", "observer"
"""The controller is the only voter, so every other node observes."""


def quorum_families(services: Services) -> Iterator[Family]:
    """Yield `raft-metrics`, `raft-channel-metrics`, `broker-metadata-metrics`, and the controller's event times."""
    metadata, pace = services.metadata, services.metadata.pace
    state = LEADER if metadata.is_controller else OBSERVER
    yield Family("kafka_server_raftmetrics_current_state", [({"current_state": state}, 1)])
    for name, value in (
        ("current_leader", metadata.controller_id),
        ("current_vote", metadata.node_id if metadata.is_controller else NO_VOTE),
        ("current_epoch", metadata.epoch),
        ("high_watermark", metadata.end_offset),
        ("log_end_offset", metadata.end_offset),
        ("log_end_epoch", metadata.epoch),
        ("number_unknown_voter_connections", 0),
        ("commit_latency_avg", pace.commit_ms.average()),
        ("commit_latency_max", pace.commit_ms.maximum()),
        # There is one voter and no election, so there is no value, as in Kafka before the first election.
        ("election_latency_avg", math.nan),
        ("election_latency_max", math.nan),
        ("append_records_rate", pace.appended_records.rate()),
        ("fetch_records_rate", pace.fetched_records.rate()),
    ):
        yield Family(f"kafka_server_raftmetrics_{name}", [(NO_LABELS, value)])
    traffic = services.node.controller_traffic() or Traffic()
    for name, value in (
        ("request_total", traffic.requests),
        ("response_total", traffic.answers),
        ("outgoing_byte_total", traffic.sent_bytes),
        ("incoming_byte_total", traffic.received_bytes),
    ):
        yield Family(f"kafka_server_raftchannelmetrics_{name}", [(NO_LABELS, value)])
    applied = metadata.end_offset - 1
    for name, value in (
        ("last_applied_record_offset", applied),
        # Records are applied in the same turn of the event loop in which they are appended, or the process ends.
        ("metadata_load_error_count", 0),
        ("metadata_apply_error_count", 0),
    ):
        yield Family(f"kafka_server_brokermetadatametrics_{name}", [(NO_LABELS, value)])
    if metadata.is_controller:
        yield from _controller_families(services, applied)


def _controller_families(services: Services, applied: int) -> Iterator[Family]:
    """Yield `kafka.controller:type=KafkaController` as far as it is about the metadata log."""
    for name, value in (
        ("lastappliedrecordoffset", applied),
        ("lastcommittedrecordoffset", applied),
        # As in Kafka: always 0 on the active controller.
        ("lastappliedrecordlagms", 0),
        ("metadataerrorcount", 0),
    ):
        yield Family(f"kafka_controller_kafkacontroller_{name}", [(NO_LABELS, value)])
    yield from _event_families(services.metadata.pace)


def _event_families(pace: LogPace) -> Iterator[Family]:
    """Yield `kafka.controller:type=ControllerEventManager`: each commit to the metadata log is an event.

    The event loop handles a request as it arrives, so that there is no queue of events.
    """
    processing_ms = sorted(pace.commits_ms)
    for name, values_ms in (("eventqueuetimems", [0.0]), ("eventqueueprocessingtimems", processing_ms)):
        family = f"kafka_controller_controllereventmanager_{name}"
        yield Family(family, [({"quantile": share}, quantile(values_ms, float(share))) for share in QUANTILES])
        yield Family(f"{family}_count", [(NO_LABELS, pace.commit_count)])
