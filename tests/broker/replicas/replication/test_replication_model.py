"""Three replicas, a controller, and failures in any order: no acknowledged record is lost.

Brokers are killed and restarted, learn the controller's decisions late, fetch at any time, and fall behind. Records
acknowledged with acks=all must be in the log of every member of the in-sync set under any leader; in the end all logs
are equal byte for byte.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.fetching.reading import FetchLimits, read_partitions
from gregor.broker.replicas.fetching.sessions import FetchedPartition
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.following import Followed, Outcome
from gregor.broker.replicas.replication.leadership import InSyncChange, ReplicationRules
from gregor.protocol.messages.fetch import PartitionData
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload, read_all

NODES = (1, 2, 3)
MAX_LAG_MS = 100
NOBODY = -1


class Replica:
    """A broker's replica: its log on disk and, while the broker runs, its role."""

    def __init__(self, node_id: int, clock: ManualClock, may_join: Callable[[int, int], bool], min_isr: int) -> None:
        self.node_id = node_id
        self.clock = clock
        self.config = LogConfig(segment_bytes=400, index_interval_bytes=64, min_insync_replicas=min_isr)
        self.files = ForgetfulFiles()
        self.wishes: list[InSyncChange] = []
        self.rules = ReplicationRules(
            node_id, MAX_LAG_MS, clock.now_ms, may_join, lambda _, wish: self.wishes.append(wish)
        )
        self.noted_high_watermark = 0
        self.broker_epoch = 0
        self.is_running = False
        self.start()

    def start(self) -> None:
        """Start a new process with the log of the old one."""
        self.log = PartitionLog.open("/logs/t-0", self.config, self.clock, pool=OpenFiles(self.files, max_open=8))
        self.log.sole_replica = False
        self.log.high_watermark = min(self.noted_high_watermark, self.log.log_end_offset)
        self.partition = Partition(self.log)
        self.followed: Followed | None = None
        self.session: dict[Partition, FetchedPartition] = {}
        """Fetched positions that the present leader knows."""
        self.is_running = True
        self.broker_epoch += 1

    def hear(self, state: PartitionState) -> None:
        """Apply the controller's decision."""
        state = copy.deepcopy(state)
        if state.leader == self.node_id:
            self.followed = None
            self.partition.become_leader(state, self.rules)
        elif self.partition.become_follower(state):
            self.followed = Followed(self.partition, state.leader_epoch)
            self.followed.begin()

    def fetch_from(self, leader: Replica, max_bytes: int = 600) -> bool:
        """Run one exchange; return whether anything has changed."""
        assert self.followed is not None
        before = self.log.log_end_offset, self.log.high_watermark
        wanted = self.followed.wanted(max_bytes)
        limits = FetchLimits(
            version=17,
            max_bytes=max_bytes,
            read_committed=False,
            replica_id=self.node_id,
            replica_epoch=self.broker_epoch,
        )
        fetched = self.session.get(leader.partition)
        if fetched is None:
            fetched = FetchedPartition("t", uuid.UUID(int=7), wanted, uses_topic_ids=False)
            self.session = {leader.partition: fetched}
        fetched.wanted = wanted
        reads = read_partitions([(fetched, leader.partition)], limits)
        if not reads:
            assert wanted.fetch_offset == leader.log.log_end_offset
            assert self.log.high_watermark == leader.log.high_watermark
            return False
        (read,) = reads
        data: PartitionData = read.answer
        fetched.learn(data)
        if read.records is not None:
            with read.records as found:
                data.records = bytes(found.read())
        outcome = self.followed.take(data, wanted.fetch_offset)
        assert outcome is not Outcome.OUT_OF_RANGE
        return before != (self.log.log_end_offset, self.log.high_watermark)


class ReplicationMachine(RuleBasedStateMachine):
    """A cluster: `state` is the controller's metadata, `acknowledged` the records that producers got acknowledged."""

    @initialize(min_isr=st.sampled_from([1, 2]))
    def begin(self, min_isr: int) -> None:
        self.clock = ManualClock(1_000_000)
        self.replicas = {node: Replica(node, self.clock, self.may_join, min_isr) for node in NODES}
        self.unfenced = set(NODES)
        self.state = PartitionState(0, 1, 1, list(NODES), list(NODES), 0)
        self.waiting: list[tuple[Replica, Partition, int, int, bytes]] = []
        self.acknowledged: dict[int, bytes] = {}
        self.count = 0
        for replica in self.replicas.values():
            replica.hear(self.state)

    def may_join(self, node_id: int, broker_epoch: int) -> bool:
        return node_id in self.unfenced and broker_epoch in (-1, self.replicas[node_id].broker_epoch)

    # --- producers and time ---

    @rule(size=st.integers(0, 150))
    def produce(self, size: int) -> None:
        """Append to every replica that acts as the leader, even if it was replaced."""
        for node in NODES:
            self.produce_to(node, size)

    def produce_to(self, node: int, size: int) -> None:
        replica = self.replicas[node]
        partition = replica.partition
        if not replica.is_running or partition.leadership is None or not partition.leadership.has_enough_in_sync:
            return
        self.count += 1
        value = b"%d" % self.count + b"." * size
        result = partition.append(payload([value]))
        self.waiting.append((replica, partition, partition.leader_epoch, result.last_offset, value))
        self.acknowledge()

    def acknowledge(self) -> None:
        still = []
        for replica, partition, epoch, offset, value in self.waiting:
            leadership = partition.leadership
            if not replica.is_running or replica.partition is not partition or leadership is None:
                continue
            if leadership.leader_epoch != epoch:
                continue
            if not partition.is_replicated(offset):
                still.append((replica, partition, epoch, offset, value))
            else:
                assert self.acknowledged.setdefault(offset, value) == value
        self.waiting = still

    @rule(ms=st.sampled_from([1, 60, 150]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(node=st.sampled_from(NODES))
    def look_for_laggards(self, node: int) -> None:
        if self.replicas[node].is_running:
            self.replicas[node].partition.drop_laggards()

    # --- brokers ---

    @rule(node=st.sampled_from(NODES), max_bytes=st.sampled_from([1, 300, 2_000]))
    def fetch(self, node: int, max_bytes: int) -> None:
        replica = self.replicas[node]
        role = replica.partition.role
        leader = self.replicas.get(getattr(role, "leader_id", NOBODY))
        if replica.is_running and replica.followed is not None and leader is not None and leader.is_running:
            replica.fetch_from(leader, max_bytes)

    @rule(rounds=st.integers(1, 3))
    def all_is_well_for_a_while(self, rounds: int) -> None:
        """Let all replicas get the metadata and fetch, and let the controller confirm in-sync sets."""
        for _ in range(rounds):
            for node in NODES:
                self.hear(node)
            for node in NODES:
                self.fetch(node, 2_000)
                self.decide_about_a_wish(self.state.leader, is_heard=True)

    @rule(node=st.sampled_from(NODES))
    def hear(self, node: int) -> None:
        if self.replicas[node].is_running:
            self.replicas[node].hear(self.state)

    @rule(node=st.sampled_from(NODES))
    def note_high_watermark(self, node: int) -> None:
        if self.replicas[node].is_running:
            self.replicas[node].noted_high_watermark = self.replicas[node].log.high_watermark

    @rule(node=st.sampled_from(NODES), trouble=st.sampled_from(["kill", "come back", "fence", "unfence", "elect"]))
    def trouble(self, node: int, trouble: str) -> None:
        """Kill, restart, fence or unfence a broker, or elect it as the leader."""
        if trouble == "kill":
            self.kill(node)
        elif trouble == "come back":
            self.come_back(node)
        elif trouble == "fence":
            self.fence(node)
        elif trouble == "unfence":
            self.unfence(node)
        elif node in self.state.isr and node in self.unfenced:
            self.elect(node)

    def kill(self, node: int) -> None:
        self.replicas[node].is_running = False

    def come_back(self, node: int) -> None:
        """Register a new incarnation of the broker, after the controller has fenced the old one."""
        if not self.replicas[node].is_running:
            self.fence(node)
            self.replicas[node].start()
            self.replicas[node].wishes.clear()
            self.unfenced.add(node)
            if self.state.leader == NOBODY and node in self.state.isr:
                self.elect(node)
            self.replicas[node].hear(self.state)

    # --- the controller ---

    def fence(self, node: int) -> None:
        """Fence a broker whose session has ended; it may be only slow or unreachable."""
        self.unfenced.discard(node)
        if node in self.state.isr and len(self.state.isr) > 1:
            self.state.isr = [member for member in self.state.isr if member != node]
            self.state.partition_epoch += 1
        if self.state.leader == node:
            self.elect(next((member for member in self.state.isr if member in self.unfenced), NOBODY))

    def unfence(self, node: int) -> None:
        if self.replicas[node].is_running and node not in self.unfenced:
            self.unfenced.add(node)
            if self.state.leader == NOBODY and node in self.state.isr:
                self.elect(node)

    def elect(self, node: int) -> None:
        self.state.leader = node
        self.state.leader_epoch += 1
        self.state.partition_epoch += 1

    @rule(node=st.sampled_from(NODES), is_heard=st.booleans())
    def decide_about_a_wish(self, node: int, is_heard: bool) -> None:
        """Answer an AlterPartition as Kafka's ReplicationControlManager does; the answer may get lost."""
        replica = self.replicas.get(node)
        if replica is None or not replica.is_running or not replica.wishes:
            return
        leadership = replica.partition.leadership
        wish = replica.wishes.pop(0)
        state = self.state
        if state.leader != node or wish.leader_epoch != state.leader_epoch:
            return
        if wish.partition_epoch != state.partition_epoch:
            return
        if not all(self.may_join(member, epoch) for member, epoch in wish.in_sync if member != node):
            if leadership is not None:
                leadership.refused(wish)
            return
        state.isr = list(wish.node_ids)
        state.partition_epoch += 1
        if is_heard and leadership is not None:
            leadership.granted(wish, state.isr, state.partition_epoch)
            replica.partition.advance_high_watermark()

    # --- what must hold ---

    @invariant()
    def acknowledged_records_are_in_sync(self) -> None:
        if not hasattr(self, "state"):
            return
        self.acknowledge()
        for node in self.state.isr:
            held = {record.offset: record.value for record in read_all(self.replicas[node].log)}
            for offset, value in self.acknowledged.items():
                assert held.get(offset) == value, f"broker {node} is in sync and lacks offset {offset}"

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        for node in NODES:
            self.come_back(node)
            self.unfence(node)
        leader = self.replicas[self.state.leader]
        for _ in range(2):
            for replica in self.replicas.values():
                replica.hear(self.state)
            while sum(follower.fetch_from(leader) for follower in self.replicas.values() if follower.followed):
                pass
            # A broker that restarts as a follower may have to wait for a leader that restarts as well.
            self.state.partition_epoch += 1
        expected = stored_bytes(leader.log)
        for replica in self.replicas.values():
            assert stored_bytes(replica.log) == expected
        self.acknowledged_records_are_in_sync()


def stored_bytes(log: PartitionLog) -> bytes:
    data = b""
    for segment in log.segments:
        segment.load()
        data += bytes(segment.map(0))
    return data


TestReplication = ReplicationMachine.TestCase
TestReplication.settings = settings(max_examples=60, stateful_step_count=60)
