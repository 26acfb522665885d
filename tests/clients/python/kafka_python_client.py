"""kafka-python: produce|consume|group BROKERS TOPIC COUNT [CODEC|GROUP]. Consumed values are printed, one a line."""

import sys

from kafka import KafkaConsumer, KafkaProducer


def produce(brokers, topic, count, codec):
    producer = KafkaProducer(bootstrap_servers=brokers, compression_type=None if codec == "none" else codec, acks="all")
    sent = [producer.send(topic, value=b"v%d" % i, key=b"k%d" % (i % 16)) for i in range(count)]
    producer.flush(30)
    for future in sent:
        future.get(timeout=30)
    producer.close()


def consume(brokers, topic, count, group=None):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=brokers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30000,
    )
    seen = 0
    for record in consumer:
        print(record.value.decode())
        seen += 1
        if seen == count:
            break
    if group is not None:
        consumer.commit()
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
        consume(brokers, topic, count, sys.argv[5])


main()
