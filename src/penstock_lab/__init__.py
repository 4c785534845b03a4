"""The lab beside the product: published evaluations run again, with cases, published values and verdicts.

It uses Penstock as any other package would: the product imports nothing from here. The command `penstock dev
experiment` comes from the entry point group `penstock.commands`.
"""
