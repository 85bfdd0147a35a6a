"""Ignored keys: Kafka's keys that Gregor accepts with one info line, without effect.

Facts of Apache Kafka 3.9.1, one key a line: name, type, default (empty if Kafka has none). After the type, ``*`` marks
Kafka's internal keys, which DescribeConfigs leaves out, ``@`` keys that may change at run time for one broker and ``+``
keys that may change for all brokers.
"""

from dataclasses import replace
from functools import cache

from .keys import ConfigType, Key, Update

SENTENCE = "Accepted for Kafka's sake; Gregor does not need it."

_UPDATES = {"@": Update.PER_BROKER, "+": Update.CLUSTER_WIDE}

_TABLE = """\
alter.config.policy.class.name CLASS
alter.log.dirs.replication.quota.window.num INT 11
alter.log.dirs.replication.quota.window.size.seconds INT 1
authorizer.class.name STRING ""
auto.include.jmx.reporter BOOLEAN true
background.threads INT+ 10
broker.id.generation.enable BOOLEAN true
client.quota.callback.class CLASS
connection.failed.authentication.delay.ms INT 100
connections.max.reauth.ms LONG 0
control.plane.listener.name STRING
controlled.shutdown.max.retries INT 3
controlled.shutdown.retry.backoff.ms LONG 5000
controller.quorum.append.linger.ms INT 25
controller.quorum.election.backoff.max.ms INT 1000
controller.quorum.election.timeout.ms INT 1000
controller.quorum.fetch.timeout.ms INT 2000
controller.socket.timeout.ms INT 30000
create.topic.policy.class.name CLASS
delegation.token.expiry.check.interval.ms LONG 3600000
delegation.token.expiry.time.ms LONG 86400000
delegation.token.master.key PASSWORD
delegation.token.max.lifetime.ms LONG 604800000
delegation.token.secret.key PASSWORD
delete.records.purgatory.purge.interval.requests INT 1
early.start.listeners STRING
eligible.leader.replicas.enable BOOLEAN false
fetch.purgatory.purge.interval.requests INT 1000
group.coordinator.append.linger.ms INT 10
group.coordinator.new.enable BOOLEAN* false
group.coordinator.threads INT 1
group.share.delivery.count.limit INT 5
group.share.enable BOOLEAN* false
group.share.heartbeat.interval.ms INT 5000
group.share.max.groups SHORT 10
group.share.max.heartbeat.interval.ms INT 15000
group.share.max.record.lock.duration.ms INT 60000
group.share.max.session.timeout.ms INT 60000
group.share.max.size SHORT 200
group.share.min.heartbeat.interval.ms INT 5000
group.share.min.record.lock.duration.ms INT 15000
group.share.min.session.timeout.ms INT 45000
group.share.partition.max.record.locks INT 200
group.share.record.lock.duration.ms INT 30000
group.share.session.timeout.ms INT 45000
kafka.metrics.polling.interval.secs INT 10
kafka.metrics.reporters LIST ""
leader.imbalance.per.broker.percentage INT 10
log.cleaner.io.buffer.size INT+ 524288
log.dir.failure.timeout.ms LONG 30000
log.flush.start.offset.checkpoint.interval.ms INT 60000
metadata.log.dir STRING
metadata.log.max.snapshot.interval.ms LONG 3600000
metadata.log.segment.min.bytes INT* 8388608
metadata.log.segment.ms LONG 604800000
metadata.max.idle.interval.ms INT 500
metadata.max.retention.bytes LONG 104857600
metadata.max.retention.ms LONG 604800000
metric.reporters LIST+ ""
metrics.num.samples INT 2
metrics.recording.level STRING INFO
metrics.sample.window.ms LONG 30000
num.io.threads INT+ 8
num.network.threads INT+ 3
num.recovery.threads.per.data.dir INT+ 1
num.replica.alter.log.dirs.threads INT
offsets.commit.required.acks SHORT -1
offsets.load.buffer.size INT 5242880
password.encoder.cipher.algorithm STRING AES/CBC/PKCS5Padding
password.encoder.iterations INT 4096
password.encoder.key.length INT 128
password.encoder.keyfactory.algorithm STRING
password.encoder.old.secret PASSWORD
password.encoder.secret PASSWORD
principal.builder.class CLASS@ org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
producer.purgatory.purge.interval.requests INT 1000
queued.max.request.bytes LONG -1
queued.max.requests INT 500
remote.fetch.max.wait.ms INT+ 500
remote.log.index.file.cache.total.size.bytes LONG+ 1073741824
remote.log.manager.copier.thread.pool.size INT -1
remote.log.manager.copy.max.bytes.per.second LONG+ 9223372036854775807
remote.log.manager.copy.quota.window.num INT 11
remote.log.manager.copy.quota.window.size.seconds INT 1
remote.log.manager.expiration.thread.pool.size INT -1
remote.log.manager.fetch.max.bytes.per.second LONG+ 9223372036854775807
remote.log.manager.fetch.quota.window.num INT 11
remote.log.manager.fetch.quota.window.size.seconds INT 1
remote.log.manager.task.interval.ms LONG 30000
remote.log.manager.task.retry.backoff.max.ms LONG* 30000
remote.log.manager.task.retry.backoff.ms LONG* 500
remote.log.manager.task.retry.jitter DOUBLE* 0.2
remote.log.manager.thread.pool.size INT 10
remote.log.metadata.custom.metadata.max.bytes INT 128
remote.log.metadata.manager.class.name STRING org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING
remote.log.metadata.manager.impl.prefix STRING rlmm.config.
remote.log.metadata.manager.listener.name STRING
remote.log.reader.max.pending.tasks INT 100
remote.log.reader.threads INT 10
remote.log.storage.manager.class.name STRING
remote.log.storage.manager.class.path STRING
remote.log.storage.manager.impl.prefix STRING rsm.config.
remote.log.storage.system.enable BOOLEAN false
replica.socket.receive.buffer.bytes INT 65536
request.timeout.ms INT 30000
reserved.broker.max.id INT 1000
sasl.client.callback.handler.class CLASS
sasl.enabled.mechanisms LIST@ GSSAPI
sasl.jaas.config PASSWORD@
sasl.kerberos.kinit.cmd STRING@ /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG@ 60000
sasl.kerberos.principal.to.local.rules LIST@ DEFAULT
sasl.kerberos.service.name STRING@
sasl.kerberos.ticket.renew.jitter DOUBLE@ 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE@ 0.8
sasl.login.callback.handler.class CLASS
sasl.login.class CLASS
sasl.login.connect.timeout.ms INT
sasl.login.read.timeout.ms INT
sasl.login.refresh.buffer.seconds SHORT@ 300
sasl.login.refresh.min.period.seconds SHORT@ 60
sasl.login.refresh.window.factor DOUBLE@ 0.8
sasl.login.refresh.window.jitter DOUBLE@ 0.05
sasl.login.retry.backoff.max.ms LONG 10000
sasl.login.retry.backoff.ms LONG 100
sasl.mechanism.controller.protocol STRING GSSAPI
sasl.mechanism.inter.broker.protocol STRING@ GSSAPI
sasl.oauthbearer.clock.skew.seconds INT 30
sasl.oauthbearer.expected.audience LIST
sasl.oauthbearer.expected.issuer STRING
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100
sasl.oauthbearer.jwks.endpoint.url STRING
sasl.oauthbearer.scope.claim.name STRING scope
sasl.oauthbearer.sub.claim.name STRING sub
sasl.oauthbearer.token.endpoint.url STRING
sasl.server.callback.handler.class CLASS
sasl.server.max.receive.size INT 524288
security.inter.broker.protocol STRING PLAINTEXT
security.providers STRING
server.max.startup.time.ms LONG* 9223372036854775807
socket.connection.setup.timeout.max.ms LONG 30000
socket.connection.setup.timeout.ms LONG 10000
ssl.allow.dn.changes BOOLEAN false
ssl.allow.san.changes BOOLEAN false
ssl.cipher.suites LIST@ ""
ssl.client.auth STRING@ none
ssl.enabled.protocols LIST@ TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm STRING@ https
ssl.engine.factory.class CLASS@
ssl.key.password PASSWORD@
ssl.keymanager.algorithm STRING@ SunX509
ssl.keystore.certificate.chain PASSWORD@
ssl.keystore.key PASSWORD@
ssl.keystore.location STRING@
ssl.keystore.password PASSWORD@
ssl.keystore.type STRING@ JKS
ssl.principal.mapping.rules STRING DEFAULT
ssl.protocol STRING@ TLSv1.3
ssl.provider STRING@
ssl.secure.random.implementation STRING@
ssl.trustmanager.algorithm STRING@ PKIX
ssl.truststore.certificates PASSWORD@
ssl.truststore.location STRING@
ssl.truststore.password PASSWORD@
ssl.truststore.type STRING@ JKS
transaction.state.log.load.buffer.size INT 5242880
unclean.leader.election.interval.ms LONG* 300000
unstable.api.versions.enable BOOLEAN* false
unstable.feature.versions.enable BOOLEAN* false
zookeeper.clientCnxnSocket STRING
zookeeper.connect STRING
zookeeper.connection.timeout.ms INT
zookeeper.max.in.flight.requests INT 10
zookeeper.metadata.migration.enable BOOLEAN false
zookeeper.metadata.migration.min.batch.size INT* 200
zookeeper.session.timeout.ms INT 18000
zookeeper.set.acl BOOLEAN false
zookeeper.ssl.cipher.suites LIST
zookeeper.ssl.client.enable BOOLEAN false
zookeeper.ssl.crl.enable BOOLEAN false
zookeeper.ssl.enabled.protocols LIST
zookeeper.ssl.endpoint.identification.algorithm STRING HTTPS
zookeeper.ssl.keystore.location STRING
zookeeper.ssl.keystore.password PASSWORD
zookeeper.ssl.keystore.type STRING
zookeeper.ssl.ocsp.enable BOOLEAN false
zookeeper.ssl.protocol STRING TLSv1.2
zookeeper.ssl.truststore.location STRING
zookeeper.ssl.truststore.password PASSWORD
zookeeper.ssl.truststore.type STRING
"""  # noqa: E501


@cache
def accepted_keys() -> dict[str, Key]:
    """Return the table as keys, by name. It is created on first use: most brokers need none of these keys."""
    return {key.name: key for key in map(_key, _TABLE.splitlines())}


def _key(row: str) -> Key:
    name, type_name, *default = row.split(" ")
    type_ = ConfigType[type_name.rstrip("*@+")]
    key = Key(name, type_, None, SENTENCE, update=_UPDATES.get(type_name[-1], Update.READ_ONLY))
    value = key.parse(default[0].strip('"')) if default else None
    return replace(key, default=value, internal=type_name.endswith("*"))
