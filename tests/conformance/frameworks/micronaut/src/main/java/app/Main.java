package app;

import io.micronaut.configuration.kafka.annotation.KafkaClient;
import io.micronaut.configuration.kafka.annotation.KafkaListener;
import io.micronaut.configuration.kafka.annotation.OffsetReset;
import io.micronaut.configuration.kafka.annotation.Topic;
import io.micronaut.configuration.kafka.health.KafkaHealthIndicator;
import io.micronaut.context.ApplicationContext;
import io.micronaut.context.annotation.Bean;
import io.micronaut.context.annotation.Factory;
import io.micronaut.context.annotation.Value;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.NewTopic;
import reactor.core.publisher.Mono;

/** Creates a topic, sends a record, receives it in a listener, and prints the report of the health indicator. */
public class Main {
    private static final CountDownLatch RECEIVED = new CountDownLatch(1);

    public static void main(String[] args) throws InterruptedException {
        try (var context = ApplicationContext.run()) {
            context.getBean(Sender.class).send("from micronaut");
            RECEIVED.await();
            var health = Mono.from(context.getBean(KafkaHealthIndicator.class).getResult()).block();
            System.out.println("health " + health.getStatus() + " " + health.getDetails());
        }
    }

    @KafkaClient
    interface Sender {
        @Topic("${topic}")
        void send(String value);
    }

    @KafkaListener(groupId = "${topic}-group", offsetReset = OffsetReset.EARLIEST)
    static class Reader {
        @Topic("${topic}")
        void receive(String value) {
            System.out.println("received " + value);
            RECEIVED.countDown();
        }
    }

    @Factory
    static class Topics {
        @Bean
        NewTopic topic(@Value("${topic}") String name) {
            return new NewTopic(name, 3, (short) 1);
        }
    }
}
