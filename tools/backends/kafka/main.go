// Command kafka is a Kafka broker for tests: the protocol of a real one, with its topics in memory.
//
// It listens on the loopback port that is its only argument, and creates topics of four partitions as they are asked for.
package main

import (
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: kafka PORT")
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(port),
		kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(4),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
