"""The types of arguments and results, for annotations and `isinstance`.

    from penstock.types import RunResult

    def is_good(result: RunResult) -> bool: ...

`types.pyi` lists them; each is loaded when it is first used. Functions, errors and the classes from which users build
pipelines are in `penstock` itself.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("penstock", __file__)
