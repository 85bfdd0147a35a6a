// Produces one record and reads it back, with the settings of a properties file: SecuredClient FILE TOPIC VALUE
import java.io.FileInputStream;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class SecuredClient {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            settings.load(file);
        }
        String text = "org.apache.kafka.common.serialization.String";
        settings.put("key.serializer", text + "Serializer");
        settings.put("value.serializer", text + "Serializer");
        settings.put("key.deserializer", text + "Deserializer");
        settings.put("value.deserializer", text + "Deserializer");
        settings.put("max.block.ms", "20000");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(args[1], args[2])).get();
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(args[1], 0);
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, 0);
            for (int attempt = 0; attempt < 20; attempt++) {
                for (ConsumerRecord<String, String> record : poll(consumer)) {
                    System.out.println(record.value());
                    return;
                }
            }
        }
        throw new IllegalStateException("no record");
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            Method poll = KafkaConsumer.class.getMethod("poll", java.time.Duration.class);
            return (ConsumerRecords<String, String>) poll.invoke(consumer, java.time.Duration.ofSeconds(1));
        } catch (NoSuchMethodException old) {
            Method poll = KafkaConsumer.class.getMethod("poll", long.class);
            return (ConsumerRecords<String, String>) poll.invoke(consumer, 1000L);
        }
    }
}
