"""Fakes and builders for tests of pipelines and policies, without a Spark session, a cluster or a wait.

    from penstock.testing import run_rows

    output = run_rows(orders, [{"user": "ann", "amount": 3.2}])
    assert output.sinks["store"] == [{"user": "ann", "cents": 320}]

`__init__.pyi` lists what is public; each name is loaded when it is first used. docs/testing-your-pipeline.md shows them
in use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
