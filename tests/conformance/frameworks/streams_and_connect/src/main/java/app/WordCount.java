package app;

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;

/** Counts the words of topic "lines" into topic "counts"; each argument is a setting, KEY=VALUE. */
public final class WordCount {
  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = new Properties();
    settings.put("default.key.serde", Serdes.StringSerde.class);
    settings.put("default.value.serde", Serdes.StringSerde.class);
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      settings.put(pair[0], pair[1]);
    }
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("lines")
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word)
        .count(Materialized.as("totals"))
        .toStream()
        .mapValues(String::valueOf)
        .to("counts");
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch failure = new CountDownLatch(1);
    streams.setStateListener((now, before) -> {
      System.out.println(now);
      if (now == KafkaStreams.State.ERROR) failure.countDown();
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
    streams.start();
    failure.await();
    System.exit(1);
  }
}
