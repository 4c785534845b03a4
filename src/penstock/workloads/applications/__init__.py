"""The documents' applications: code of their operators, and the messages they read.

Message n of every stream of data is made up from its number alone: the same number gives the same message wherever and
whenever it is made, so answers can be worked out independently. An application gets the number itself from the load
generator, or the message from a topic that `penstock dev produce` filled.
"""
