// A small franz-go client for the tests.
//
//	franz-go-client produce BROKERS TOPIC COUNT CODEC   values v0, v1, …; key = partition chooser k<i%16>
//	franz-go-client consume BROKERS TOPIC COUNT         prints each value on a line, then ends
//	franz-go-client group BROKERS TOPIC COUNT GROUP     the same through a consumer group, committing at the end
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 {
		return fmt.Errorf("usage: produce|consume|group BROKERS TOPIC COUNT [CODEC|GROUP]")
	}
	count, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seeds := kgo.SeedBrokers(strings.Split(args[1], ",")...)
	switch args[0] {
	case "produce":
		return produce(ctx, seeds, args[2], count, args[4])
	case "consume":
		return consume(ctx, count, seeds, kgo.ConsumeTopics(args[2]))
	case "group":
		return consume(ctx, count, seeds, kgo.ConsumeTopics(args[2]), kgo.ConsumerGroup(args[4]), kgo.DisableAutoCommit())
	}
	return fmt.Errorf("unknown command %s", args[0])
}

func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.NoCompression(), fmt.Errorf("unknown codec %s", name)
}

func produce(ctx context.Context, seeds kgo.Opt, topic string, count int, name string) error {
	compression, err := codec(name)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(seeds, kgo.ProducerBatchCompression(compression), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	for i := range count {
		record := &kgo.Record{Key: []byte(fmt.Sprintf("k%d", i%16)), Value: []byte(fmt.Sprintf("v%d", i))}
		client.Produce(ctx, record, func(_ *kgo.Record, failure error) {
			if failure != nil {
				fmt.Fprintln(os.Stderr, failure)
				os.Exit(1)
			}
		})
	}
	return client.Flush(ctx)
}

func consume(ctx context.Context, count int, options ...kgo.Opt) error {
	options = append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			seen++
		})
	}
	if group, _ := client.GroupMetadata(); group != "" {
		return client.CommitUncommittedOffsets(ctx)
	}
	return nil
}
