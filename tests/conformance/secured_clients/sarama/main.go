// Produces one record and reads it back, with settings as JSON: secured SETTINGS TOPIC VALUE
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type settings struct{ Brokers, Ca, Pem, Mechanism, Username, Password, Given string }

// Token lets the settings be the source of the token.
func (given settings) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: given.Given}, nil
}

// conversation is the SCRAM of xdg-go, which sarama leaves to its users.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

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
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: trusted}
	if given.Pem != "" {
		config.Net.TLS.Config.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(given.Pem, given.Pem))}
	}
	if given.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(given.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = given.Username, given.Password
		config.Net.SASL.TokenProvider = given
		hash := scram.SHA256
		if given.Mechanism == sarama.SASLTypeSCRAMSHA512 {
			hash = scram.SHA512
		}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hash} }
	}
	client := must(sarama.NewClient([]string{given.Brokers}, config))
	producer := must(sarama.NewSyncProducerFromClient(client))
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
	must(0, err)
	consumer := must(sarama.NewConsumerFromClient(client))
	partition := must(consumer.ConsumePartition(topic, 0, sarama.OffsetOldest))
	select {
	case message := <-partition.Messages():
		fmt.Println(string(message.Value))
	case failure := <-partition.Errors():
		must(0, failure)
	}
}
