"""Contracts, registries, charts and helpers for packages that add to Penstock.

A placer, a sharing policy, a command of `penstock dev` or an experiment of your own needs names that users of pipelines
never see. They are here, so that such a package does not depend on where Penstock defines them. `plugins.pyi` lists
them; each is loaded when it is first used. docs/i-write-a-policy.md shows a policy.
"""

from penstock.base.lazy_names import listed_names

__getattr__, __dir__, __all__ = listed_names(__name__, __file__)
