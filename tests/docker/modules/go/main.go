// Run by test_testcontainers.py: a round trip through the Kafka module of Testcontainers for Go.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	check(ctx, "kafka.Run")
	check(ctx, "kafka.Run with a cluster id", kafka.WithClusterID("4L6g3nShT-eMCtK--X86sw"))
}

func check(ctx context.Context, name string, options ...testcontainers.ContainerCustomizer) {
	container, err := kafka.Run(ctx, os.Args[1], options...)
	defer func() { _ = testcontainers.TerminateContainer(container) }()
	must(err)
	servers, err := container.Brokers(ctx)
	must(err)
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("t"),
		kgo.ConsumerGroup("g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err)
	defer client.Close()
	must(client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr())
	polling, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	fetches := client.PollFetches(polling)
	must(fetches.Err())
	if value := string(fetches.Records()[0].Value); value != "v" {
		log.Fatalf("read %q", value)
	}
	fmt.Println(name + ": a round trip")
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
