// Produces one record and reads it back, with settings as JSON: secured SETTINGS TOPIC VALUE
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type settings struct{ Brokers, Ca, Pem, Mechanism, Username, Password, Given string }

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	var given settings
	must(0, json.Unmarshal([]byte(os.Args[1]), &given))
	topic, value := os.Args[2], os.Args[3]
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(given.Ca)))
	security := &tls.Config{RootCAs: trusted}
	if given.Pem != "" {
		security.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(given.Pem, given.Pem))}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(given.Brokers),
		kgo.DialTLSConfig(security),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
	}
	switch given.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: given.Username, Pass: given.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: given.Username, Pass: given.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: given.Username, Pass: given.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: given.Given}.AsMechanism()))
	}
	client := must(kgo.NewClient(options...))
	defer client.Close()
	patience, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	must(0, client.ProduceSync(patience, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
	fetches := client.PollFetches(patience)
	for _, failure := range fetches.Errors() {
		must(0, failure.Err)
	}
	for _, record := range fetches.Records() {
		fmt.Println(string(record.Value))
		return
	}
}
