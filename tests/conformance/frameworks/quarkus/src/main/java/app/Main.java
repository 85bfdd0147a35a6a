package app;

import io.quarkus.runtime.Quarkus;
import io.quarkus.runtime.QuarkusApplication;
import io.quarkus.runtime.annotations.QuarkusMain;
import io.smallrye.health.SmallRyeHealthReporter;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.inject.Inject;
import java.util.concurrent.CountDownLatch;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Emitter;
import org.eclipse.microprofile.reactive.messaging.Incoming;

/** Sends a record through one channel, receives it through another, and prints the report of the readiness checks. */
@QuarkusMain
public class Main implements QuarkusApplication {
    private static final CountDownLatch RECEIVED = new CountDownLatch(1);

    @Inject @Channel("out") Emitter<String> out;
    @Inject SmallRyeHealthReporter health;

    public static void main(String[] args) {
        Quarkus.run(Main.class, args);
    }

    @Override
    public int run(String... args) throws InterruptedException {
        out.send("from quarkus").toCompletableFuture().join();
        RECEIVED.await();
        while (health.getReadiness().isDown()) {
            Thread.sleep(50);
        }
        System.out.println("ready " + health.getReadiness().getPayload());
        return 0;
    }

    @ApplicationScoped
    static class Reader {
        @Incoming("in")
        void receive(String value) {
            System.out.println("received " + value);
            RECEIVED.countDown();
        }
    }
}
