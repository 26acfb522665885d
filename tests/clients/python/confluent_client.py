"""confluent-kafka: produce|consume|group|new-group BROKERS TOPIC COUNT [CODEC|GROUP]. Consumed values are printed, one a line."""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def produce(brokers, topic, count, codec):
    failures = []
    producer = Producer({"bootstrap.servers": brokers, "compression.codec": codec, "enable.idempotence": True})
    for i in range(count):
        producer.produce(
            topic,
            value=b"v%d" % i,
            key=b"k%d" % (i % 16),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    left = producer.flush(30)
    if left or failures:
        sys.exit(f"{left} records not delivered, failures: {failures[:3]}")


def consume(brokers, topic, count, group=None, protocol="classic"):
    consumer = Consumer(
        {
            "group.protocol": protocol,
            "bootstrap.servers": brokers,
            "group.id": group or "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    if group is None:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    else:
        consumer.subscribe([topic])
    seen, deadline = 0, time.monotonic() + 30
    while seen < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            sys.exit(str(message.error()))
        print(message.value().decode())
        seen += 1
    if group is not None and seen:
        consumer.commit(asynchronous=False)
    consumer.close()
    if seen < count:
        sys.exit(f"{seen} of {count} records came")


def main():
    mode, brokers, topic, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    if mode == "produce":
        produce(brokers, topic, count, sys.argv[5])
    elif mode == "consume":
        consume(brokers, topic, count)
    else:
        protocol = "consumer" if mode == "new-group" else "classic"
        consume(brokers, topic, count, sys.argv[5], protocol)


main()
