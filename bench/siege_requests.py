"""The requests of `bench/siege.py`: random, seeded, mostly of the right shape and rarely of the right size."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from siege_controller import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODE = """
import os, signal, sys, threading, time


class Rude(Exception):
    def __str__(self):
        raise RuntimeError("not even my name")


class Undecided:
    def __bool__(self):
        raise ValueError("neither")

    __eq__ = __hash__ = __repr__ = __str__ = __bool__


def yes(*_): return True
def no(*_): return False
def raises(*_): raise RuntimeError("as written")
def rude(*_): raise Rude
def leaves(*_): sys.exit(3)
def interrupts(*_): raise KeyboardInterrupt
def generator_exit(*_): raise GeneratorExit
def base(*_): raise BaseException("base")
def gone(*_): os._exit(7)
def killed(*_): os.kill(os.getpid(), signal.SIGKILL)
def sleeps(*_): time.sleep(3600)
def spins(*_):
    while True: pass
def deep(*_): return deep(*_)
def undecided(*_): return Undecided()
def talks(*_): print("x" * 100_000); sys.stderr.write("y" * 100_000); return True
def closes(*_): os.closerange(0, 3); return True
def long_reason(*_): return "z" * 5_000_000
def bytes_reason(*_): return b"\\xff"
def nan(*_): return float("nan")
def nested(*_):
    found = []
    for _ in range(5000): found = [found]
    return found
def slow(*_): time.sleep(0.4); return True
def asynchronous():
    async def later(*_): return True
    return later
later = asynchronous()
def yields(*_): yield True
def threads(*_): [threading.Thread(target=time.sleep, args=(5,)).start() for _ in range(20)]; return True
def mutates(*given):
    for one in given:
        if isinstance(one, dict): one.clear()
    return True
def alarms(*_): signal.setitimer(signal.ITIMER_REAL, 0.05); return True
value = 7
class Callable:
    def __init__(self, *_): pass
"""
BAD_MODULES = {
    "siege_import_raises": "raise RuntimeError('on import')",
    "siege_import_exits": "import sys; sys.exit(4)",
    "siege_import_hangs": "import time; time.sleep(3600)",
    "siege_import_syntax": "def (",
    "siege_import_self": "import siege_import_self; siege_import_self.x",
    "siege_import_base": "class Odd(BaseException): pass\nraise Odd",
}
NAMES = [
    *(
        "a",
        "b",
        "c",
        "d",
        "orders",
        "audit",
        "clicks",
        "Ω",
        "заказы",
        "订单汇总",
        "注文",
        "طلبات",
        "סדר",
        "คำสั่ง",
        "आदेश",
        "주문",
        "🛒🛒",
    ),
    *(
        "e\u0301",
        "İstanbul",
        "ǅ",
        "a b",
        "-x",
        "--help",
        "$(id)",
        "a\\b",
        "a'b\"c",
        "<script>",
        "{{7*7}}",
        "a;b",
        "null",
    ),
    *(
        "0",
        "1e3",
        "__proto__",
        "\u202eabc",
        "\ufeffbom",
        "zero\u200bwidth",
        "a?b",
        "a#b",
        "a&b=c",
        "%2e%2e",
        "n1",
        "ᚠᛇ",
    ),
    *("a" * 200, "订" * 66, "😀" * 50, "!" * 86, "..", ".", "what-if-1", "controller", "token", "a%00b", "NaN", "ﷺ"),
]
PIPELINES = [
    *("linear",) * 6, "diamond", "star", "micro-linear", "micro-diamond", "micro-star", "word-count", "app-finance",
    *("app-traffic", "app-grid", "twitter-sentiment", "nothing-like-it", "", "siege_code:value", "siege_import_exits:x"),
]  # fmt: skip
POLICIES = [
    *("fair-priority", "fair-max-min", "dominant-fair", "dynamic-priority", "static-priority", "shared", "isolation"),
    *(
        "max-min",
        "fair-priority:ratio=1",
        "fair-priority:ratio=1000",
        "fair-priority:ratio=1e-300",
        "fair-priority:ratio=0",
    ),
    *(
        "fair-priority:patience=0",
        "fair-priority:patience=1e-9",
        "fair-max-min:patience=1e308",
        "shared:odd=1",
        "shared:",
    ),
]
ATTRIBUTES = [
    *(
        "yes",
        "no",
        "raises",
        "rude",
        "leaves",
        "interrupts",
        "generator_exit",
        "base",
        "gone",
        "killed",
        "sleeps",
        "spins",
    ),
    *(
        "deep",
        "undecided",
        "talks",
        "closes",
        "long_reason",
        "bytes_reason",
        "nan",
        "nested",
        "slow",
        "later",
        "yields",
    ),
    *("threads", "mutates", "alarms", "value", "Callable", "missing", "asynchronous", "yes.__call__", ""),
]
STDLIB = [
    *("sys:exit", "os:abort", "builtins:breakpoint", "builtins:input", "builtins:print", "builtins:exit", "time:sleep"),
    *(
        "faulthandler:_sigsegv",
        "faulthandler:_read_null",
        "builtins:id",
        "itertools:count",
        "threading:Lock",
        "os:pause",
    ),
    *(".x:y", "a:", ":a", "a:b:c", "os.path:join", "signal:pause", "builtins:iter", "antigravity:geohash", "this:s"),
]
FORECASTS = ["seasonal", "last-value", "none", "weekly", "seasonal:1", ""]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X"]
ODD = [
    *(
        None,
        True,
        False,
        "",
        "1",
        "NaN",
        [],
        {},
        [1],
        {"a": 1},
        "\x00",
        "\ud800",
        -1,
        0,
        2**63,
        10**30,
        1e308,
        5e-324,
        -0.0,
    ),
    *(float("nan"), float("inf"), "x" * 5000),
]
METRICS = ["rate", "offered_rate", "backlog", "lag", "latency_ms", "busy", "fairness", "odd", ""]


def write_material(folder: Path) -> list[str]:
    """Write the attackers' modules and files into `folder`; return paths that a request may name."""
    (folder / "siege_code.py").write_text(CODE)
    for name, text in BAD_MODULES.items():
        (folder / f"{name}.py").write_text(text + "\n")
    (folder / "short.csv").write_text("0,10\n5,100\n9,0\n")
    (folder / "odd.csv").write_text("0,1e308\n1,5e-324\n1,7\n0.5,nan\n")
    (folder / "junk.csv").write_bytes(bytes(range(256)) * 64)
    (folder / "long.csv").write_text("\n".join(f"{at},{at % 97}" for at in range(50_000)))
    (folder / "own.yaml").write_text(
        "name: own\noperators:\n  s: {kind: source}\n  p: {model: pi}\n  o: {kind: sink}\n"
        "streams:\n  - {from: s, to: p}\n  - {from: p, to: o}\n"
    )
    (folder / "deep.yaml").write_text("[" * 5000)
    if not (folder / "pipe.yaml").exists():
        os.mkfifo(folder / "pipe.yaml")
        os.mkfifo(folder / "pipe.csv")
    names = ["short.csv", "odd.csv", "junk.csv", "long.csv", "own.yaml", "deep.yaml", "pipe.yaml", "pipe.csv"]
    return [*(str(folder / name) for name in names), "/dev/zero", "/dev/stdin", "/proc/self/mem", "/", "../own.yaml"]


class Attacker:
    """One client's stream of requests. `hot` is a name that all clients race for at the moment."""

    def __init__(self, seed: str, files: list[str], plan: dict[str, Any], protected: set[str]) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - nothing is secret here
        self.files, self.plan, self.protected = files, plan, protected
        self.hot = "orders"
        kinds: list[tuple[int, Callable[[], Request]]] = [
            *((16, self.submit), (12, self.amend), (9, self.kill), (9, self.trigger), (5, self.trigger_change)),
            *((5, self.policy), (4, self.add_nodes), (4, self.remove_node), (5, self.register), (9, self.report)),
            *(
                (20, self.read),
                (2, self.what_if),
                (1, self.watch),
                (2, self.login),
                (4, self.wrong_door),
                (3, self.wire),
            ),
        ]
        self.kinds, self.weights = [kind for _, kind in kinds], [weight for weight, _ in kinds]

    def burst(self) -> list[Request]:
        """Requests to be sent one after the other without a break."""
        if self.draw.random() < 0.2:
            race = [
                self.submit,
                self.submit,
                self.kill,
                self.pause,
                self.pause,
                self.amend,
                self.trigger,
                self.register,
            ]
            return [self.draw.choice(race)() for _ in range(self.draw.randrange(3, 12))]
        return [self.draw.choices(self.kinds, self.weights)[0]() for _ in range(self.draw.randrange(1, 30))]

    def name(self) -> str:
        found = self.hot if self.draw.random() < 0.3 else self.draw.choice(NAMES)
        return found if self.draw.random() < 0.97 else "".join(chr(self.draw.randrange(33, 0x2FFF)) for _ in range(9))

    def within(self, low: float, high: float, whole: bool = False) -> Any:
        """A number between the limits that the API names, often one of them, rarely one beside them."""
        kind, span = self.draw.randrange(20), high - low
        if kind == 0:
            return self.draw.choice(ODD)
        if kind == 1:
            return self.draw.choice([low - 1, high + 1, -high, high * 10])
        if kind < 8:
            return self.draw.choice([low, high, low + 1] if whole else [low, high, max(low, 1e-9), high * (1 - 1e-16)])
        found = low + min(span, 10 ** self.draw.uniform(-1.0 if whole else -7.0, 6.0))
        if kind < 15:
            found = low + min(span, self.draw.choice([0, 1, 2, 3, 5, 8]))
        return int(found) if whole else float(found)

    def some(self, fields: dict[str, Callable[[], Any]], most: int = 99) -> dict[str, Any]:
        chosen = self.draw.sample(sorted(fields), self.draw.randrange(min(len(fields), most) + 1))
        return {key: fields[key]() for key in chosen}

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Request:
        data = None if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
        if data is not None and self.draw.random() < 0.03:
            data = self.spoilt(data)
        return Request(method, path, data, **more)

    def spoilt(self, data: bytes) -> bytes:
        place = self.draw.randrange(len(data) + 1)
        return self.draw.choice(
            [
                data[:place],
                data[:place] + self.draw.randbytes(3) + data[place:],
                b"[" * 100_000,
                b"\xef\xbb\xbf" + data,
                data.replace(b'"', b"'"),
                data + data,
                b"{" + b'"a":1,' * 200_000 + b'"a":1}',
                data.decode("utf-8", "replace").encode("utf-16"),
                b"9" * 10_000,
                b'{"name":"a","name":"b","pipeline":"linear"}',
            ]
        )

    def code(self) -> str:
        kind = self.draw.randrange(10)
        if kind == 0:
            return self.draw.choice(STDLIB)
        return (
            f"{self.draw.choice(sorted(BAD_MODULES))}:x" if kind == 1 else f"siege_code:{self.draw.choice(ATTRIBUTES)}"
        )

    def load(self) -> Any:
        rate = self.draw.choice(
            ["33", "1e8", "1e-9", "0", "1e12", "-5", "1_000", "١٢", "0x10", " 5 ", "inf", "nan", "2.5"]
        )
        return self.draw.choice(
            [
                rate,
                self.within(0, 1e12),
                f"steps:60x100,{rate}x{rate}",
                f"steps:0.001x{rate},1e9x1",
                "steps:" + "1x1," * self.draw.choice([1, 3000]) + "1x2",
                f"on-off:{rate},5,2",
                f"on-off:100,{rate},1e-6",
                f"trace:{self.draw.choice(self.files)}",
                f"sine:{rate},1,2",
                self.draw.choice(["steps:", "on-off:", "trace:", "steps:x", "", ":"]),
            ]
        )

    def target(self) -> Any:
        fields = {"rate": lambda: self.within(0, 1e12), "latency_ms": lambda: self.within(0, 1e12)}
        return self.some(fields)

    def elastic(self) -> Any:
        if self.draw.random() < 0.2:
            return self.draw.choice([True, False, None, {}])
        day, part = (lambda: self.within(0, 86_400)), (lambda: self.within(0, 1))
        hours = lambda: [self.within(0, 23, whole=True) for _ in range(self.draw.choice([0, 1, 2, 24, 500]))]
        seconds = ("catch_up_seconds", "shrink_after_seconds", "worth_seconds", "ahead_seconds")
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(seconds, day),
            **dict.fromkeys(("shrink_most", "least_load", "most_load"), part),
            **dict.fromkeys(("enabled", "advise_only"), lambda: self.draw.random() < 0.5),
            "excluded_hours": hours,
            "forecast": lambda: self.draw.choice(FORECASTS),
            "veto": self.code,
        }
        return self.some(fields, 4)

    def graph(self) -> dict[str, Any]:
        """A pipeline written out: a random graph with figures that no measurement would give."""
        size = self.draw.choice([1, 2, 3, 4, 6, 60])
        names = ["s", *(self.draw.choice(NAMES) + str(n) for n in range(size)), "o"]
        few = lambda: self.draw.choice([1, 0.5, 8, 1e-300, 1e300, 1e6, 0, self.within(0, 1e9)])
        models = ["pi", "parse_xml", "azure_table", "azure_blob", "batch_file_write", "none"]
        operators: dict[str, Any] = {"s": {"kind": "source"}, "o": {"kind": "sink"}}
        for name in names[1:-1]:
            figures = {"cpu": few(), "memory_mb": few(), "threads": self.within(1, 1e6, whole=True)}
            operators[name] = figures if self.draw.random() < 0.3 else {"model": self.draw.choice(models)}
        streams = []
        for at, name in enumerate(names[1:], 1):
            sender = names[at - 1 if self.draw.random() < 0.7 else self.draw.randrange(at)]
            more = {"selectivity": few, "constant": few, "weight": few, "bytes": few}
            streams.append({"from": sender, "to": name, **self.some(more, 2)})  # type: ignore[arg-type]
        if self.draw.random() < 0.05:
            streams.append({"from": names[-1], "to": names[0]})
        return {"name": self.name(), "operators": operators, "streams": streams}

    def spoilt_plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(json.dumps(self.plan))
        for _ in range(self.draw.randrange(4)):
            inside: Any = plan
            while isinstance(inside, dict | list) and inside:
                key = self.draw.choice(sorted(inside) if isinstance(inside, dict) else range(len(inside)))
                if not isinstance(inside[key], dict | list) or self.draw.random() < 0.1:
                    inside[key] = self.draw.choice([*ODD, "n1", "n2", 0, 1, 7, 10**6])
                    break
                inside = inside[key]
        return plan

    def submit(self) -> Request:
        body: dict[str, Any] = {"name": self.name()}
        kind = self.draw.random()
        if kind < 0.05:
            body["plan"] = self.spoilt_plan()
        elif kind < 0.08:
            body["pipeline"] = self.draw.choice(self.files)
        elif kind < 0.25:
            body["pipeline"] = self.graph()
        else:
            body["pipeline"] = self.draw.choice(PIPELINES)
        units = lambda: self.within(1, 1e6, whole=True)
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(("desired", "minimum", "maximum"), units),
            "priority": lambda: self.within(1, 1000, whole=True),
            "engine": lambda: self.draw.choice(["auto", "fused", "placed", "attached", "odd"]),
            **{"target": self.target, "load": self.load, "elastic": self.elastic},
        }
        return self.ask("POST", "/v1/pipelines", {**body, **self.some(fields, 5)})

    def amend(self) -> Request:
        units = lambda: self.within(1, 1e6, whole=True)
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(("minimum", "maximum"), units),
            "priority": lambda: self.within(1, 1000, whole=True),
            "paused": lambda: self.draw.random() < 0.5,
            **{"target": self.target, "load": self.load, "elastic": self.elastic},
        }
        return self.ask("PATCH", self.of_name(), self.some(fields, 3))

    def of_name(self, rest: str = "") -> str:
        return f"/v1/pipelines/{quote(self.name(), safe='', errors='surrogatepass')}{rest}"

    def kill(self) -> Request:
        return self.ask("DELETE", self.of_name())

    def pause(self) -> Request:
        return self.ask("PATCH", self.of_name(), {"paused": self.draw.random() < 0.5})

    def trigger(self) -> Request:
        kinds = [*("arrival-rate", "lag", "batch-share") * 3, self.code()]
        any_number = lambda: self.draw.choice([self.within(0, 1e9), self.draw.choice(ODD), -1e308, 1e-300])
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(("above", "below"), any_number),
            "share": lambda: self.within(0, 1),
            "field": self.name,
            "for_seconds": lambda: self.within(0, 86_400),
            "priority": lambda: self.within(1, 1000, whole=True),
            "enabled": lambda: self.draw.random() < 0.8,
        }
        kind = self.draw.choice(kinds)
        sound = {"above": self.within(0, 100)} if kind in kinds[:9] and self.draw.random() < 0.8 else {}
        return self.ask("POST", self.of_name("/triggers"), {"kind": kind, **self.some(fields, 3), **sound})

    def trigger_change(self) -> Request:
        number = self.draw.choice([*range(1, 9), 0, -1, 10**30, "x", "1.0", "%00", "١"])
        path = self.of_name(f"/triggers/{quote(str(number), safe='%')}")
        kind = self.draw.randrange(4)
        if kind == 0:
            return self.ask("DELETE", path)
        if kind == 1:
            body = {
                "above": self.within(0, 1e9),
                "enabled": self.draw.random() < 0.7,
                "priority": self.within(1, 9, True),
            }
            return self.ask("PATCH", path, body)
        return self.ask("POST", f"{path}/{self.draw.choice(['on', 'on', 'off', 'odd'])}")

    def policy(self) -> Request:
        fields: dict[str, Callable[[], Any]] = {
            "rescheduling": lambda: self.draw.choice(["live", "documented", "odd", None]),
            "default_priority": lambda: self.within(1, 1000, whole=True),
        }
        return self.ask("PUT", "/v1/policy", {"sharing": self.draw.choice(POLICIES), **self.some(fields)})

    def add_nodes(self) -> Request:
        count = self.draw.choices([1, 2, 5, 30, 10_000, self.within(1, 10_000, True)], [60, 20, 10, 4, 0.2, 1])[0]
        return self.ask("POST", "/v1/nodes", {"count": count} if self.draw.random() < 0.8 else {"size": self.name()})

    def remove_node(self) -> Request:
        name = f"n{self.draw.randrange(1, self.draw.choice([9, 40, 400]))}"
        while name in self.protected:
            name = f"n{self.draw.randrange(1, 400)}"
        return self.ask("DELETE", f"/v1/nodes/{name if self.draw.random() < 0.95 else quote(self.name(), safe='')}")

    def register(self) -> Request:
        units = lambda: self.within(1, 1e6, whole=True)
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(("minimum", "maximum"), units),
            **{"target": self.target, "priority": lambda: self.within(1, 1000, whole=True)},
        }
        return self.ask("POST", "/v1/attached", {"name": self.name(), **self.some(fields)})

    def report(self) -> Request:
        large = lambda: self.within(0, 1e15)
        values = ("rate", "offered_rate", "backlog", "latency_ms", "busy")
        body: dict[str, Any] = {
            "held": self.within(0, 1e6, whole=True),
            "wanted": self.within(1, 1e6, whole=True),
            "why": self.draw.choice(["", "more rows", "\x00\x1b[31m", "é" * 1500, "line\nline"]),
            "values": self.some(dict.fromkeys(values, large)),
        }
        nodes = lambda: {
            self.draw.choice(["n1", "n2", "n3", "n999", self.name()]): self.within(0, 1e6, whole=True) for _ in range(3)
        }
        advice = ("target_rate", "most_rate_now", "headroom", "batch_seconds", "max_offsets_per_trigger")
        fields: dict[str, Callable[[], Any]] = {
            "nodes": nodes,
            "serial": lambda: self.within(-1, 2**53, whole=True),
            "advice": lambda: {
                "limit": self.draw.choice(["state", "executors", "nothing", "odd", "<b>"]),
                **{"what_to_do": self.name(), "evidence": [self.name()], **{key: large() for key in advice}},
            },
        }
        path = f"/v1/attached/{quote(self.name(), safe='')}/reports"
        return self.ask("POST", path, {**body, **self.some(fields)})

    def read(self) -> Request:
        name = quote(self.name(), safe="")
        number = lambda: self.draw.choice([0, 1, 5, 1000, 1001, -1, "x", 1e300, "nan", "", 2**63, "1e9"])
        paths = [
            *("/v1/pipelines", f"/v1/pipelines/{name}", f"/v1/pipelines/{name}/log", f"/v1/pipelines/{name}/triggers"),
            *("/v1/nodes", "/v1/fairness", f"/v1/fairness?since={number()}", "/v1/policy", "/metrics", "/health", "/"),
            *(f"/v1/decisions?since={number()}&limit={number()}", f"/v1/decisions?pipeline={name}&offset={number()}"),
            *(f"/v1/events?limit={number()}", f"/v1/events?pipeline={name}&since={number()}", "/openapi.json", "/docs"),
            f"/v1/statistics/{name}?scope={self.draw.choice(['operator', 'thread', 'partition', 'node', 'odd'])}",
            f"/v1/statistics/{name}?metric={self.draw.choice(METRICS)}&since={number()}",
            *(f"/v1/attached/{name}/advice", "/v1/views/start", "/v1/views/fleet", "/v1/views/cluster"),
            *(f"/v1/views/pipeline?name={name}", f"/v1/views/series?name={name}&metric=rate&seconds={number()}"),
            f"/v1/views/decisions?pipeline={name}&limit={number()}&before={number()}",
        ]
        return self.ask("GET", self.draw.choice(paths), token=self.draw.choice(["write", "read"]))

    def what_if(self) -> Request:
        large = self.draw.random() < 0.1
        asked = {
            "pipeline": quote(self.name(), safe=""),
            "nodes": self.draw.choice([1, 4, 0, "x", 10_000 if large else 8]),
            "seconds": self.draw.choice([1, 20, -1, 1800 if large else 10]),
            "rate": self.within(0, 1e12),
            "priority": self.within(1, 1000, True),
            "policy": self.draw.choice(POLICIES),
        }
        keys = self.draw.sample(sorted(asked), self.draw.randrange(2, 6))
        query = "&".join(f"{key}={quote(str(asked[key]), safe='%', errors='replace')}" for key in keys)
        return self.ask("GET", f"/v1/views/what-if?{query}", token="read", seconds=2.0, leaves=True)

    def watch(self) -> Request:
        return self.ask("GET", "/v1/watch", token="read", seconds=2.0, leaves=True)

    def login(self) -> Request:
        wrong = {"token": self.draw.choice(["x", "", "é", "x" * 5000]), "who": self.name(), "code": "0"}
        body = self.some({key: (lambda one=one: one) for key, one in wrong.items()})  # type: ignore[misc]
        return self.draw.choice(
            [
                self.ask("POST", "/login", body, token=None),
                self.ask("POST", "/login", {"token": "x", **body}, token="write"),
                self.ask("POST", "/v1/login-codes", token="read"),
                self.ask("POST", "/logout", token="read"),
            ]
        )

    def wrong_door(self) -> Request:
        """A request that must be turned away: method, token, host, origin, size, encoding."""
        sound = self.draw.choice([self.submit, self.amend, self.read, self.policy, self.register])()
        token = self.draw.choice(["write", "read", None, "x", "é", "write " * 500, "\u0661"])
        method = self.draw.choice(METHODS) if self.draw.random() < 0.5 else sound.method
        choices = [
            *(("Host", "example.org"), ("Host", ""), ("Origin", "http://example.org"), ("Origin", "null")),
            *(("Cookie", "session=" + "x" * 3000), ("Content-Type", "text/plain"), ("Content-Encoding", "gzip")),
            *(
                ("Expect", "100-continue"),
                ("Content-Length", "-1"),
                ("Transfer-Encoding", "chunked"),
                ("Upgrade", "h2c"),
            ),
            *(("X-A", "y" * 70_000), ("Authorization", "Basic eDp5"), ("Accept", "*/*;q=nan"), ("Range", "bytes=0-")),
            *(("X-Forwarded-For", "10.0.0.1"), ("Connection", "Upgrade"), ("Sec-Fetch-Site", "cross-site")),
        ]
        path = (
            sound.path
            if self.draw.random() < 0.8
            else sound.path + self.draw.choice(["/", "?%00", "//", "/../..", "%ff"])
        )
        return Request(method, path, sound.body, token, (self.draw.choice(choices),), seconds=5.0, leaves=True)

    def wire(self) -> Request:
        """Bytes that are not quite HTTP; the client sends them and closes its side."""
        auth = b"Authorization: Bearer @WRITE@\r\n"
        raw = self.draw.choice(
            [
                b"GET /health\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.draw.randbytes(200),
                b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{",
                b"POST /v1/pipelines HTTP/1.1\r\nHost: 127.0.0.1\r\n" + auth + b"Content-Length: 99\r\n\r\n{",
                b"POST /v1/pipelines HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                + auth
                + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n{}",
                b"POST /v1/pipelines HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                + auth
                + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
                b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50,
                b"GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
                b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                b"GET /%00%ff%c0%af HTTP/1.1\r\nHost: 127.0.0.1\r\n" + auth + b"\r\n",
                b"GET http://example.org/v1/pipelines HTTP/1.1\r\nHost: 127.0.0.1\r\n" + auth + b"\r\n",
                b"GET /health HTTP/1.1\nHost: 127.0.0.1\n\n",
                b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
                self.draw.randbytes(self.draw.randrange(1, 2000)),
                b"",
            ]
        )
        return Request("GET", "(bytes)", raw=raw, token=None, seconds=3.0, leaves=True)
