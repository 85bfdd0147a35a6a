// Run by test_testcontainers.py: a round trip through each mode of Testcontainers for Node's Kafka class.
import { KafkaContainer } from "@testcontainers/kafka";
import kafkajs from "kafkajs";

const image = process.argv[2];

async function roundTrip(servers) {
  const client = new kafkajs.Kafka({ brokers: [servers], logLevel: kafkajs.logLevel.ERROR });
  const producer = client.producer();
  await producer.connect();
  await producer.send({ topic: "t", messages: [{ value: "v" }] });
  await producer.disconnect();
  const consumer = client.consumer({ groupId: "g" });
  await consumer.connect();
  await consumer.subscribe({ topic: "t", fromBeginning: true });
  const value = await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("no record within 30 s")), 30_000).unref();
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) });
  });
  if (value !== "v") throw new Error(`read ${value}`);
  await consumer.disconnect();
}

for (const [name, container] of [
  ["ZooKeeper", new KafkaContainer(image)],
  ["KRaft", new KafkaContainer(image).withKraft()],
]) {
  const started = await container.start();
  try {
    await roundTrip(`${started.getHost()}:${started.getMappedPort(9093)}`);
  } finally {
    await started.stop();
  }
  console.log(`${name}: a round trip`);
}
