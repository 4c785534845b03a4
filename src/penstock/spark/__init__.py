"""Executes pipelines on Apache Spark. Nothing outside this package and the runnable workloads imports pyspark."""
