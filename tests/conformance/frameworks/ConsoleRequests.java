import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * The AdminClient's calls of kafbat's kafka-ui (ReactiveAdminClient) and of AKHQ (AbstractKafkaWrapper), when they connect
 * and on each of their pages. Arguments: bootstrap servers, a topic with records, a group that has committed offsets.
 */
public class ConsoleRequests {
    public static void main(String[] args) throws Exception {
        String topic = args[1], group = args[2], own = topic + "-of-console";
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            // On connecting.
            var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            Collection<Node> nodes = cluster.nodes().get();
            List<Integer> brokers = nodes.stream().map(Node::id).collect(Collectors.toList());
            said("cluster", cluster.clusterId().get().length() + " " + cluster.controller().get().id() + " " + cluster.authorizedOperations().get().size());
            List<ConfigResource> ofBrokers = brokers.stream().map(id -> new ConfigResource(ConfigResource.Type.BROKER, "" + id)).collect(Collectors.toList());
            Config config = admin.describeConfigs(ofBrokers).all().get().get(ofBrokers.get(0));
            said("delete.topic.enable", config.get("delete.topic.enable").value());
            said("metadata.version", admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"));
            said("acls", disabled(() -> admin.describeAcls(AclBindingFilter.ANY).values().get()));
            // Brokers.
            var directories = admin.describeLogDirs(brokers).allDescriptions().get();
            String directory = directories.get(brokers.get(0)).keySet().iterator().next();
            said("log directories", directories.get(brokers.get(0)).get(directory).replicaInfos().containsKey(first));
            said("quorum", admin.describeMetadataQuorum().quorumInfo().get().leaderId());
            // Topics.
            Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            said("topics", names.contains(topic) && names.contains("__consumer_offsets"));
            said("described", admin.describeTopics(names).allTopicNames().get().get(topic).partitions().size());
            var ofTopics = names.stream().map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).collect(Collectors.toList());
            var documented = admin.describeConfigs(ofTopics, new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get();
            ConfigEntry retention = documented.get(new ConfigResource(ConfigResource.Type.TOPIC, topic)).get("retention.ms");
            said("synonyms and documentation", !retention.synonyms().isEmpty() && retention.documentation() != null);
            said("offsets", admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset()
                + " " + admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset());
            said("producers", admin.describeProducers(List.of(first)).all().get().get(first).activeProducers().size());
            // Consumer groups.
            said("groups", admin.listConsumerGroups().all().get().stream().anyMatch(found -> found.groupId().equals(group)));
            said("members", admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size());
            var spec = Map.of(group, new ListConsumerGroupOffsetsSpec().topicPartitions(null));
            said("committed", admin.listConsumerGroupOffsets(spec).all().get().get(group).get(first).offset());
            admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(0))).all().get();
            admin.alterConsumerGroupOffsets(own, Map.of(first, new OffsetAndMetadata(0))).all().get();
            admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get();
            admin.deleteConsumerGroups(List.of(own)).all().get();
            // Changes.
            admin.createTopics(List.of(new NewTopic(own, Optional.of(1), Optional.empty()).configs(Map.of("retention.ms", "1000000")))).all().get();
            admin.createPartitions(Map.of(own, NewPartitions.increaseTo(2))).all().get();
            var ofOwn = new ConfigResource(ConfigResource.Type.TOPIC, own);
            admin.incrementalAlterConfigs(Map.of(ofOwn, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "2000000"), AlterConfigOp.OpType.SET)))).all().get();
            admin.incrementalAlterConfigs(Map.of(ofBrokers.get(0), List.of(new AlterConfigOp(new ConfigEntry("log.cleaner.threads", "1"), AlterConfigOp.OpType.SET)))).all().get();
            admin.alterPartitionReassignments(Map.of(new TopicPartition(own, 0), Optional.of(new NewPartitionReassignment(brokers)))).all().get();
            admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(own, 0, brokers.get(0)), directory)).all().get();
            said("purged", admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1))).lowWatermarks().get(first).get().lowWatermark());
            admin.deleteTopics(List.of(own)).all().get();
            var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "console"));
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6))))).all().get();
            said("quotas", new TreeMap<>(admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().get(entity)));
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all().get();
        }
    }

    private static void said(String name, Object value) {
        System.out.println("> " + name + ": " + value);
    }

    private static boolean disabled(Callable<?> call) throws Exception {
        try {
            call.call();
            return false;
        } catch (ExecutionException error) {
            if (error.getCause() instanceof SecurityDisabledException) {
                return true;
            }
            throw error;
        }
    }
}
