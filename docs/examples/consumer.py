"""A consumer that claims each message in the transaction of its work. It needs psycopg 3 and nothing else.

Run as a script it stands in for a broker: each line `name topic` of its input is a delivery, and it prints what became
of it. DATABASE_URL names the database. The work is a row in the table `orders (name text, topic text)`.
"""

import hashlib
import os
import random
import sys
import time
import traceback
import uuid
from datetime import datetime, timedelta, timezone

import psycopg

# uuid5(NAMESPACE_URL, "https://github.com/inboxd/inboxd/message-id")
NAMESPACE = uuid.UUID("de7b9259-5b8a-5ce0-bfae-af4a6534c58d")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Waits two seconds at most for another transaction that holds the same message.
CLAIM = "select outcome from public.inbox_try_claim(%s, %s, %s, null, interval '2 seconds')"
DONE = {"fresh", "duplicate", "repeated"}
# From the claim: a day without a partition, a wrong isolation level, no right, no such function, a partition without its key.
PAUSE = {"23514", "IX004", "42501", "42883", "42P10"}
# Serialization failure, deadlock.
RETRYABLE = {"40001", "40P01"}
ATTEMPTS = 3
LATER_S = 5


def message_id(name):
    """The id of a message that its source knows by a name."""
    if not name:
        raise ValueError("a message without a name has no id")
    digest = hashlib.sha1(NAMESPACE.bytes + name.encode()).digest()
    return uuid.UUID(bytes=digest[:16], version=5)


def time_ordered_id(created_at, key):
    """The same as a UUIDv7, for an inbox with message_id routing."""
    ms = (created_at - EPOCH) // timedelta(milliseconds=1)
    if not 0 <= ms < 1 << 48:
        raise ValueError(f"a UUIDv7 cannot hold {created_at}")
    octets = bytearray(ms.to_bytes(6, "big") + message_id(key).bytes[6:])
    octets[6] = octets[6] & 0x0F | 0x70
    octets[8] = octets[8] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(octets))


class Pause(Exception):
    """No message can be claimed: stop consuming, alarm, and start again once that is mended."""


class Unknown(Exception):
    """The connection was lost while COMMIT was outstanding."""


def consume(connect, deliveries, handle):
    """Settles every delivery: ack, retry or dead_letter."""
    connection = None
    for delivery in deliveries:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if connection is None or connection.closed:
                    connection = connected(connect)
                outcome = unit_of_work(connection, delivery, handle)
            except Pause:
                roll_back(connection)
                delivery.retry(LATER_S)
                raise
            except Unknown:
                outcome = "unknown"  # Not run again here: the claim of the redelivery decides.
            except Exception as error:
                roll_back(connection)
                if getattr(error, "sqlstate", None) in RETRYABLE and attempt < ATTEMPTS:
                    time.sleep(random.uniform(0, 0.1 * attempt))
                    continue
                traceback.print_exc()
                outcome = "failed"
            break
        print(delivery.name, outcome, flush=True)
        if outcome in DONE:
            delivery.ack()
        elif outcome in {"in_flight", "failed", "unknown"}:
            delivery.retry(LATER_S)
        else:  # too_old, too_new, invalid
            delivery.dead_letter()


def unit_of_work(connection, delivery, handle):
    """Claims, works, commits. If it raises anything but Unknown, nothing is committed."""
    connection.execute("begin isolation level read committed")
    try:
        claimed = (message_id(delivery.name), delivery.topic, delivery.created_at)
        (outcome,) = connection.execute(CLAIM, claimed).fetchone()
    except psycopg.Error as error:
        if error.sqlstate in PAUSE:
            raise Pause(str(error)) from error
        raise
    if outcome == "fresh":
        handle(connection, delivery)
    try:
        answer = connection.execute("commit").statusmessage
    except psycopg.Error as error:
        if connection.closed:
            raise Unknown from error
        raise  # The server answered, and has rolled back.
    if answer != "COMMIT":
        # The handler swallowed an SQL error. The server rolls back and calls that a success.
        raise RuntimeError(f"COMMIT was answered with {answer}")
    return outcome


def connected(connect):
    try:
        return connect()
    except psycopg.OperationalError as error:
        raise Pause(str(error)) from error


def roll_back(connection):
    try:
        if connection is not None and not connection.closed:
            connection.rollback()
    except psycopg.Error:
        connection.close()


class StandIn:
    """A delivery without a broker."""

    def __init__(self, line):
        self.name, self.topic = line.split()
        self.created_at = None  # The event's own creation time, where the broker tells it.

    def ack(self):
        print(self.name, "ack", flush=True)

    def retry(self, after_s):
        print(self.name, "retry after", after_s, flush=True)

    def dead_letter(self):
        print(self.name, "dead_letter", flush=True)


def insert_order(connection, delivery):
    connection.execute("insert into orders (name, topic) values (%s, %s)", (delivery.name, delivery.topic))


def connect_to_database():
    # Without prepared statements it works through pgbouncer in transaction mode too.
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=None)


if __name__ == "__main__":
    try:
        consume(connect_to_database, map(StandIn, sys.stdin), insert_order)
    except Pause as pause:
        sys.exit(f"paused: {pause}")
