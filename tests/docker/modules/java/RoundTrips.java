// Run by test_testcontainers.py: a round trip through each Kafka class of Testcontainers for Java.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.Container.ExecResult;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

public class RoundTrips {
  static DockerImageName apache;
  static DockerImageName confluent;

  public static void main(String[] images) throws Exception {
    apache = DockerImageName.parse(images[0]).asCompatibleSubstituteFor("apache/kafka");
    confluent = DockerImageName.parse(images[0]).asCompatibleSubstituteFor("confluentinc/cp-kafka");
    check("kafka.KafkaContainer", new KafkaContainer(apache), KafkaContainer::getBootstrapServers);
    check("kafka.ConfluentKafkaContainer", new ConfluentKafkaContainer(confluent),
        ConfluentKafkaContainer::getBootstrapServers);
    check("containers.KafkaContainer with ZooKeeper", new org.testcontainers.containers.KafkaContainer(confluent),
        org.testcontainers.containers.KafkaContainer::getBootstrapServers);
    check("containers.KafkaContainer with KRaft", new org.testcontainers.containers.KafkaContainer(confluent).withKraft(),
        org.testcontainers.containers.KafkaContainer::getBootstrapServers);
    checkListenerOfNetwork();
  }

  static <C extends GenericContainer<C>> void check(String name, C container, Function<C, String> servers) {
    try (container) {
      container.start();
      roundTrip(servers.apply(container));
    }
    System.out.println(name + ": a round trip");
  }

  static void roundTrip(String servers) {
    try (var producer = new KafkaProducer<>(
        Map.of("bootstrap.servers", servers, "acks", "all"), new StringSerializer(), new StringSerializer())) {
      producer.send(new ProducerRecord<>("t", "v"));
    }
    Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", "g", "auto.offset.reset", "earliest");
    try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of("t"));
      var deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
      while (System.nanoTime() < deadline) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          if (record.value().equals("v")) {
            return;
          }
        }
      }
    }
    throw new AssertionError("no record within 30 s");
  }

  /** Another container of a network reaches the broker by the listener that `withListener` adds. */
  static void checkListenerOfNetwork() throws Exception {
    try (var network = Network.newNetwork();
        var container = new KafkaContainer(apache).withNetwork(network).withListener("kafka:19092");
        var other = new GenericContainer<>(apache).withNetwork(network).withCommand("sleep", "600")) {
      container.start();
      roundTrip(container.getBootstrapServers());
      other.setWaitStrategy(new org.testcontainers.containers.wait.strategy.AbstractWaitStrategy() {
        @Override
        protected void waitUntilReady() {}
      });
      other.start();
      ExecResult read = other.execInContainer("/opt/kafka/bin/kafka-console-consumer.sh", "--bootstrap-server", "kafka:19092",
          "--topic", "t", "--from-beginning", "--max-messages", "1", "--timeout-ms", "30000");
      if (!read.getStdout().equals("v\n")) {
        throw new AssertionError(read.getStdout() + read.getStderr());
      }
    }
    System.out.println("a listener of a network: a round trip");
  }
}
