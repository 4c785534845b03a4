"""The tables of the store. `holdings` lets no slot be assigned, asked for or possibly held twice, by any writer."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

SCHEMA_VERSION = 4
"""Raised with every change of a table, together with a step in `migrations`; a store of a later version is rejected."""

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String(40), primary_key=True), Column("value", String(200)))

lease = Table(
    "lease",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("held", Boolean, nullable=False),
    Column("host", String(255), nullable=False),
    Column("boot", String(100), nullable=False),
    Column("namespace", String(100), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("ticks", BigInteger, nullable=False),
    Column("folder", Text, nullable=False),
    Column("folder_id", String(100), nullable=False),
    Column("renewed_at", Float, nullable=False),
)
"""See `lease.LeaseHolder`; `renewed_at` is by the holder's clock, for people."""

controller = Table(
    "controller",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("policy", JSON, nullable=False),
    Column("unit_slots", Integer, nullable=False, info={"least": 1}),
    Column("submitted", Integer, nullable=False),
    Column("decided", Integer, nullable=False),
    Column("triggers_made", Integer, nullable=False),
    Column("last_pass", Float, nullable=False),
    Column("step", String(40)),
)
"""`step` is a random id of the last step that was written."""

pipelines = Table(
    "pipelines",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("state", String(20), nullable=False),
    Column("since", Float, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("rest", JSON, nullable=False),
)

submissions = Table(
    "submissions",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("submission", JSON, nullable=False),
)
"""Apart from what changes all the time: a submission is large, and written once."""

holdings = Table(
    "holdings",
    metadata,
    Column("kind", String(10), nullable=False),
    Column("node", String(200), nullable=False),
    Column("slot", Integer, nullable=False),
    Column("pipeline", String(200), nullable=False, index=True),
    Column("position", Integer, nullable=False),
    PrimaryKeyConstraint("kind", "node", "slot"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("rack", String(200), nullable=False),
    Column("slots", Integer, nullable=False),
    Column("state", String(20), nullable=False),
    Column("since", Float, nullable=False),
    Column("capacity", JSON, nullable=False),
    Column("price", Float),
)

triggers = Table(
    "triggers",
    metadata,
    Column("pipeline", String(200), nullable=False),
    Column("id", Integer, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("on", Boolean, nullable=False),
    Column("rest", JSON, nullable=False),
    PrimaryKeyConstraint("pipeline", "id"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False, index=True),
    Column("subject", String(200), nullable=False, index=True),
    Column("kind", String(20), nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("why", Text, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False, index=True),
    Column("pipeline", String(200), nullable=False, index=True),
    Column("kind", String(20), nullable=False),
    Column("before", Integer, nullable=False),
    Column("after", Integer, nullable=False),
    Column("why", Text, nullable=False),
    Column("rejected", JSON, nullable=False),
    Column("expected", JSON, nullable=False),
    Column("pass_number", Integer),
    Column("overhead", JSON),
)

passes = Table(
    "passes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("cause", Text, nullable=False),
    Column("inputs", JSON, nullable=False),
    Column("shares", JSON, nullable=False),
)

metrics = Table(
    "metrics",
    metadata,
    Column("owner", String(201), nullable=False),
    Column("seconds", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("readings", LargeBinary, nullable=False),
    PrimaryKeyConstraint("owner", "seconds", "at"),
    Index("metrics_by_age", "seconds", "at"),
)
"""`readings` are the means over `seconds` from `at` on; see `windows`."""
