package app;

import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.NewTopic;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.ApplicationRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.testcontainers.service.connection.ServiceConnection;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Profile;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/**
 * Creates a topic, sends a record in a transaction, receives it in a listener, and prints what KafkaAdmin describes.
 * With the profile "container" the broker is a container of the image of the property "image".
 */
@SpringBootApplication
public class Main {
    private static final CountDownLatch RECEIVED = new CountDownLatch(1);

    public static void main(String[] args) throws InterruptedException {
        try (var context = SpringApplication.run(Main.class, args)) {
            RECEIVED.await();
        }
    }

    @Bean
    NewTopic topic(@Value("${topic}") String name) {
        return TopicBuilder.name(name).partitions(3).compact().build();
    }

    @KafkaListener(topics = "${topic}", groupId = "${topic}-group")
    void receive(String value) {
        System.out.println("received " + value);
        RECEIVED.countDown();
    }

    @Bean
    ApplicationRunner send(KafkaTemplate<String, String> template, KafkaAdmin admin, @Value("${topic}") String topic) {
        return arguments -> {
            System.out.println("partitions " + admin.describeTopics(topic).get(topic).partitions().size());
            template.executeInTransaction(inside -> inside.send(topic, "key", "from spring"));
        };
    }

    @Configuration
    @Profile("container")
    static class Containers {
        @Bean
        @ServiceConnection
        KafkaContainer kafka(@Value("${image}") String image) {
            return new KafkaContainer(DockerImageName.parse(image).asCompatibleSubstituteFor("apache/kafka"));
        }
    }
}
