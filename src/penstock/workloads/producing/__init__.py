"""Producers: messages of the applications, or rows of files, sent to a topic or into files at a rate over time."""
