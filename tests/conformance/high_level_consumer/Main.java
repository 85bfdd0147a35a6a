import java.util.Collections;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/** A member of a group of Kafka 0.8 or 0.9's high-level consumers: prints each record as "partition offset value". */
public class Main {
    /** Arguments: zookeeper.connect, group, topic, and further settings as key=value. SIGTERM commits and leaves. */
    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("zookeeper.connect", args[0]);
        properties.put("group.id", args[1]);
        properties.put("auto.offset.reset", "smallest");
        properties.put("auto.commit.interval.ms", "200");
        properties.put("zookeeper.session.timeout.ms", "6000");
        properties.put("rebalance.backoff.ms", "1000");
        properties.put("rebalance.max.retries", "20");
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        ConsumerConnector consumer = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        KafkaStream<byte[], byte[]> stream =
            consumer.createMessageStreams(Collections.singletonMap(args[2], 1)).get(args[2]).get(0);
        System.out.println("started");
        for (MessageAndMetadata<byte[], byte[]> record : stream) {
            System.out.println(record.partition() + " " + record.offset() + " " + new String(record.message()));
        }
    }
}
