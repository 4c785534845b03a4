"""`penstock.broker_up()`, `penstock.broker_down()`: a Kafka on this machine to try with."""

from __future__ import annotations

from penstock.spark.broker.broker import RunningBroker, broker_down, broker_up, running_broker

__all__ = ["RunningBroker", "broker_down", "broker_up", "running_broker"]
