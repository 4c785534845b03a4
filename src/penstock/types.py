"""The types of arguments and results, for annotations and `isinstance`.

    from penstock.types import RunResult

    def is_good(result: RunResult) -> bool: ...

`types.pyi` lists them; each is loaded when it is first used. Functions, errors and the classes from which users build
pipelines are in `penstock` itself.
"""

from penstock.base.lazy_names import listed_names

__getattr__, __dir__, __all__ = listed_names(__name__, __file__)
