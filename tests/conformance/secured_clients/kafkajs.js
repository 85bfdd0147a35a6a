// Produces one record and reads it back by kafkajs: SETTINGS(JSON) TOPIC VALUE; NODE_PATH names the library.
const fs = require('fs');
const { Kafka, logLevel } = require('kafkajs');

const [settings, topic, value] = [JSON.parse(process.argv[2]), process.argv[3], process.argv[4]];
const ssl = settings.ca && {
  ca: [fs.readFileSync(settings.ca)],
  ...(settings.pem && { key: fs.readFileSync(settings.pem), cert: fs.readFileSync(settings.pem) }),
};
const sasl = settings.token
  ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: settings.token }) }
  : settings.sasl;
const kafka = new Kafka({ brokers: [settings.brokers], ssl, sasl, logLevel: logLevel.ERROR, retry: { retries: 3 } });

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `group-${topic}` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const read = new Promise((resolve) => consumer.run({ eachMessage: async ({ message }) => resolve(message) }));
  console.log((await read).value.toString());
  await consumer.disconnect();
}

main().catch((error) => { console.error(error); process.exit(1); });
