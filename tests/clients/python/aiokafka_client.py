"""aiokafka: produce|consume|group BROKERS TOPIC COUNT [CODEC|GROUP]. Consumed values are printed, one a line."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def produce(brokers, topic, count, codec):
    producer = AIOKafkaProducer(
        bootstrap_servers=brokers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
    )
    await producer.start()
    try:
        sent = [await producer.send(topic, b"v%d" % i, key=b"k%d" % (i % 16)) for i in range(count)]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def consume(brokers, topic, count, group=None):
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=brokers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        for _ in range(count):
            record = await asyncio.wait_for(consumer.getone(), 30)
            print(record.value.decode())
        if group is not None:
            await consumer.commit()
    finally:
        await consumer.stop()


def main():
    mode, brokers, topic, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    if mode == "produce":
        asyncio.run(produce(brokers, topic, count, sys.argv[5]))
    elif mode == "consume":
        asyncio.run(consume(brokers, topic, count))
    else:
        asyncio.run(consume(brokers, topic, count, sys.argv[5]))


main()
