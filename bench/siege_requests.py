"""The requests of `bench/siege.py`: random, seeded, mostly of the right shape and rarely of the right size."""

from __future__ import annotations

import json
import os
import random
from collections import deque
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


def words(text: str) -> list[str]:
    return text.split()


NAMES = words("""
    a b c d orders audit clicks Ω заказы 订单汇总 注文 طلبات סדר คำสั่ง आदेश 주문 🛒🛒 İstanbul ǅ ᚠᛇ ﷺ -x --help $(id) a\\b
    a'b"c <script> {{7*7}} a;b null 0 1e3 __proto__ a?b a#b a&b=c %2e%2e a%00b n1 .. . what-if-1 token NaN
""")
NAMES += ["a" * 200, "订" * 66, "😀" * 50, "!" * 86, "a b", "e\u0301", "\u202eabc", "\ufeffbom", "zero\u200bwidth"]
PIPELINES = words("""
    linear linear linear linear linear linear diamond star micro-linear micro-diamond micro-star word-count app-finance
    app-traffic app-grid twitter-sentiment nothing-like-it siege_code:value siege_import_exits:x
""")
POLICIES = words("""
    fair-priority fair-max-min dominant-fair dynamic-priority static-priority shared isolation max-min shared:
    fair-priority:ratio=1 fair-priority:ratio=1000 fair-priority:ratio=1e-300 fair-priority:ratio=0 shared:odd=1
    fair-priority:patience=0 fair-priority:patience=1e-9 fair-max-min:patience=1e308
""")
ATTRIBUTES = words("""
    yes no raises rude leaves interrupts generator_exit base gone killed sleeps spins deep undecided talks closes
    long_reason bytes_reason nan nested slow later yields threads mutates alarms value Callable missing asynchronous
""")
STDLIB = words("""
    sys:exit os:abort builtins:breakpoint builtins:input builtins:print builtins:exit time:sleep builtins:id this:s
    faulthandler:_sigsegv faulthandler:_read_null itertools:count threading:Lock .x:y a: :a a:b:c os.path:join
    signal:pause builtins:iter
""")
FORECASTS = ["seasonal", "last-value", "none", "weekly", "seasonal:1", ""]
LOADS = ["33", "1e8", "1e-9", "0", "1e12", "-5", "1_000", "\u0661\u0662", "0x10", " 5 ", "inf", "nan", "2.5"]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X"]
ODD_NUMBERS = [-1, 0, 2**63, 10**30, 1e308, 5e-324, -0.0, float("nan"), float("inf"), True]
ODD = [*ODD_NUMBERS, None, False, "", "1", "NaN", [], {}, [1], {"a": 1}, "\x00", "\ud800", "x" * 5000]
METRICS = ["rate", "offered_rate", "backlog", "lag", "latency_ms", "busy", "fairness", "odd", ""]
MODELS = ["pi", "parse_xml", "azure_table", "azure_blob", "batch_file_write", "none"]
HEADERS = [
    *(("Host", "example.org"), ("Host", ""), ("Origin", "http://example.org"), ("Origin", "null"), ("Upgrade", "h2c")),
    *(("Cookie", "session=" + "x" * 3000), ("Content-Type", "text/plain"), ("Content-Encoding", "gzip")),
    *(("Expect", "100-continue"), ("Content-Length", "-1"), ("Transfer-Encoding", "chunked"), ("Range", "bytes=0-")),
    *(("X-A", "y" * 70_000), ("Authorization", "Basic eDp5"), ("Accept", "*/*;q=nan"), ("Connection", "Upgrade")),
    *(("X-Forwarded-For", "10.0.0.1"), ("Sec-Fetch-Site", "cross-site")),
]
AUTH = b"HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer @WRITE@\r\n"
WIRE = [
    b"",
    b"GET /health\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{",
    b"POST /v1/pipelines " + AUTH + b"Content-Length: 99\r\n\r\n{",
    b"POST /v1/pipelines " + AUTH + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n{}",
    b"POST /v1/pipelines " + AUTH + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50,
    b"GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /%00%ff%c0%af " + AUTH + b"\r\n",
    b"GET http://example.org/v1/pipelines " + AUTH + b"\r\n",
    b"GET /health HTTP/1.1\nHost: 127.0.0.1\n\n",
    b"GET /health " + AUTH + b"Host: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
]


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
        self.submitted: deque[str] = deque(["orders"], maxlen=12)
        self.attached: deque[str] = deque(["orders"], maxlen=6)
        kinds: list[tuple[int, Callable[[], Request]]] = [
            *((16, self.submit), (12, self.amend), (9, self.kill), (9, self.trigger), (5, self.trigger_change)),
            *((5, self.policy), (4, self.add_nodes), (4, self.remove_node), (5, self.register), (9, self.report)),
            *((20, self.read), (2, self.what_if), (1, self.watch), (2, self.login), (4, self.wrong_door)),
            (3, self.wire),
        ]
        self.kinds, self.weights = [kind for _, kind in kinds], [weight for weight, _ in kinds]

    def burst(self) -> list[Request]:
        """Requests to be sent one after the other without a break."""
        if self.draw.random() < 0.2:
            race = [self.submit, self.submit, self.kill, self.pause, self.amend, self.trigger, self.register]
            return [self.draw.choice(race)() for _ in range(self.draw.randrange(3, 12))]
        return [self.draw.choices(self.kinds, self.weights)[0]() for _ in range(self.draw.randrange(1, 30))]

    # values

    def name(self) -> str:
        found = self.hot if self.draw.random() < 0.3 else self.draw.choice(NAMES)
        return found if self.draw.random() < 0.97 else "".join(chr(self.draw.randrange(33, 0x2FFF)) for _ in range(9))

    def quoted(self, known: deque[str] | None = None) -> str:
        """A name for a path, mostly one of those that this client has asked for before."""
        name = self.draw.choice(known or self.submitted) if self.draw.random() < 0.8 else self.name()
        return quote(name, safe="", errors="surrogatepass")

    def new_name(self, known: deque[str]) -> str:
        known.append(self.name())
        return known[-1]

    def within(self, low: float, high: float, whole: bool = False) -> Any:
        """A number between the limits that the API names, often one of them, rarely one beside them."""
        kind, span = self.draw.randrange(40), high - low
        if kind == 0:
            return self.draw.choice(ODD)
        if kind == 1:
            return self.draw.choice([low - 1, high + 1, -high, high * 10])
        if kind < 10:
            limits = [low, high, low + 1] if whole else [low, high, max(low, 1e-9), high * (1 - 1e-16)]
            return self.draw.choice(limits)
        found = low + min(span, 10 ** self.draw.uniform(-1.0 if whole else -7.0, 6.0))
        if kind < 30:
            found = low + min(span, self.draw.choice([0, 1, 2, 3, 5, 8]))
        return int(found) if whole else float(found)

    def units(self) -> Any:
        return self.within(1, 1e6, whole=True)

    def level(self) -> Any:
        return self.within(1, 1000, whole=True)

    def rate(self) -> Any:
        return self.within(0, 1e12)

    def large(self) -> Any:
        return self.within(0, 1e15)

    def part(self) -> Any:
        return self.within(0, 1)

    def day(self) -> Any:
        return self.within(0, 86_400)

    def maybe(self) -> bool:
        return self.draw.random() < 0.5

    def figure(self) -> Any:
        extreme = self.draw.choice([1e-300, 1e300, 1e6, 0, -1e308, self.within(0, 1e9)])
        return extreme if self.draw.random() < 0.2 else self.draw.choice([1, 2, 0.5, 8, 30])

    def query_number(self) -> Any:
        return self.draw.choice([0, 1, 5, 1000, 1001, -1, "x", 1e300, "nan", "", 2**63, "1e9"])

    def hours(self) -> Any:
        return [self.within(0, 23, whole=True) for _ in range(self.draw.choice([0, 1, 2, 24, 500]))]

    def code(self) -> str:
        kind = self.draw.randrange(10)
        if kind == 0:
            return self.draw.choice(STDLIB)
        module = f"{self.draw.choice(sorted(BAD_MODULES))}:x"
        return module if kind == 1 else f"siege_code:{self.draw.choice(ATTRIBUTES)}"

    def load(self) -> Any:
        rate = self.draw.choice(LOADS)
        many = "1x1," * self.draw.choice([1, 3000])
        return self.draw.choice(
            [
                *(rate, self.rate(), f"steps:60x100,{rate}x{rate}", f"steps:0.001x{rate},1e9x1", f"steps:{many}1x2"),
                *(f"on-off:{rate},5,2", f"on-off:100,{rate},1e-6", f"trace:{self.draw.choice(self.files)}"),
                *(f"sine:{rate},1,2", self.draw.choice(["steps:", "on-off:", "trace:", "steps:x", "", ":"])),
            ]
        )

    def some(self, fields: dict[str, Callable[[], Any]], most: int = 99) -> dict[str, Any]:
        chosen = self.draw.sample(sorted(fields), self.draw.randrange(min(len(fields), most) + 1))
        return {key: fields[key]() for key in chosen}

    def target(self) -> Any:
        return self.some({"rate": self.rate, "latency_ms": self.rate})

    def elastic(self) -> Any:
        if self.draw.random() < 0.2:
            return self.draw.choice([True, False, None, {}])
        seconds = ("catch_up_seconds", "shrink_after_seconds", "worth_seconds", "ahead_seconds")
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(seconds, self.day),
            **dict.fromkeys(("shrink_most", "min_utilisation", "max_utilisation"), self.part),
            **dict.fromkeys(("enabled", "advise_only"), self.maybe),
            "excluded_hours": self.hours,
            "forecast": lambda: self.draw.choice(FORECASTS),
            "veto": self.code,
        }
        return self.some(fields, 4)

    def graph(self) -> dict[str, Any]:
        """A pipeline written out: a random graph with figures that no measurement would give."""
        size = self.draw.choice([1, 2, 3, 4, 6, 60])
        names = ["s", *(self.draw.choice(NAMES) + str(n) for n in range(size)), "o"]
        operators: dict[str, Any] = {"s": {"kind": "source"}, "o": {"kind": "sink"}}
        for name in names[1:-1]:
            figures = {"cpu": self.figure(), "memory_mb": self.figure(), "threads": self.units()}
            operators[name] = figures if self.draw.random() < 0.3 else {"model": self.draw.choice(MODELS)}
        streams = []
        for at, name in enumerate(names[1:], 1):
            sender = names[at - 1 if self.draw.random() < 0.7 else self.draw.randrange(at)]
            more = dict.fromkeys(("selectivity", "constant", "weight", "bytes"), self.figure)
            streams.append({"from": sender, "to": name, **self.some(more, 2)})
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

    def spoilt(self, data: bytes) -> bytes:
        place = self.draw.randrange(len(data) + 1)
        return self.draw.choice(
            [
                *(data[:place], data[:place] + self.draw.randbytes(3) + data[place:], data + data, b"[" * 100_000),
                *(
                    b"\xef\xbb\xbf" + data,
                    data.replace(b'"', b"'"),
                    b"9" * 10_000,
                    b"{" + b'"a":1,' * 200_000 + b'"a":1}',
                ),
                *(data.decode("utf-8", "replace").encode("utf-16"), b'{"name":"a","name":"b","pipeline":"linear"}'),
            ]
        )

    # requests

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Request:
        data = None if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
        if data is not None and self.draw.random() < 0.03:
            data = self.spoilt(data)
        return Request(method, path, data, **more)

    def of_pipeline(self, rest: str = "") -> str:
        return f"/v1/pipelines/{self.quoted()}{rest}"

    def submit(self) -> Request:
        kind, what = self.draw.random(), "pipeline"
        given: Any = self.draw.choice(PIPELINES)
        if kind < 0.05:
            what, given = "plan", self.spoilt_plan()
        elif kind < 0.08:
            given = self.draw.choice(self.files)
        elif kind < 0.25:
            given = self.graph()
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(("desired", "minimum", "maximum"), self.units),
            "priority": self.level,
            "target": self.target,
            "load": self.load,
            "elastic": self.elastic,
            "engine": lambda: self.draw.choice(["auto", "fused", "placed", "attached", "odd"]),
        }
        return self.ask(
            "POST", "/v1/pipelines", {"name": self.new_name(self.submitted), what: given, **self.some(fields, 5)}
        )

    def amend(self) -> Request:
        fields: dict[str, Callable[[], Any]] = {
            "priority": self.level,
            "target": self.target,
            "load": self.load,
            "elastic": self.elastic,
            "minimum": self.units,
            "maximum": self.units,
            "paused": self.maybe,
        }
        return self.ask("PATCH", self.of_pipeline(), self.some(fields, 3))

    def kill(self) -> Request:
        return self.ask("DELETE", self.of_pipeline())

    def pause(self) -> Request:
        return self.ask("PATCH", self.of_pipeline(), {"paused": self.maybe()})

    def trigger(self) -> Request:
        kind = self.draw.choice([*("arrival-rate", "lag", "batch-share") * 3, self.code()])
        fields: dict[str, Callable[[], Any]] = {
            "above": self.figure,
            "below": self.figure,
            "share": self.part,
            "field": self.name,
            "for_seconds": self.day,
            "priority": self.level,
            "enabled": self.maybe,
        }
        sound = {"above": self.within(0, 100)} if ":" not in kind and self.draw.random() < 0.8 else {}
        return self.ask("POST", self.of_pipeline("/triggers"), {"kind": kind, **self.some(fields, 3), **sound})

    def trigger_change(self) -> Request:
        number = self.draw.choice([*range(1, 9), 0, -1, 10**30, "x", "1.0", "%00", "%D9%A1"])
        path, kind = self.of_pipeline(f"/triggers/{number}"), self.draw.randrange(4)
        if kind == 0:
            return self.ask("DELETE", path)
        if kind == 1:
            fields: dict[str, Callable[[], Any]] = {"above": self.figure, "below": self.figure, "share": self.part}
            return self.ask("PATCH", path, self.some({**fields, "enabled": self.maybe, "priority": self.level}))
        return self.ask("POST", f"{path}/{self.draw.choice(['on', 'on', 'off', 'odd'])}")

    def policy(self) -> Request:
        fields: dict[str, Callable[[], Any]] = {
            "rescheduling": lambda: self.draw.choice(["live", "documented", "odd", None]),
            "default_priority": self.level,
        }
        return self.ask("PUT", "/v1/policy", {"sharing": self.draw.choice(POLICIES), **self.some(fields)})

    def add_nodes(self) -> Request:
        count = self.draw.choices([1, 2, 5, 30, 10_000, self.within(1, 10_000, True)], [60, 20, 10, 4, 0.2, 1])[0]
        return self.ask("POST", "/v1/nodes", {"count": count} if self.draw.random() < 0.8 else {"size": self.name()})

    def remove_node(self) -> Request:
        name = f"n{self.draw.randrange(1, self.draw.choice([9, 40, 400]))}"
        while name in self.protected:
            name = f"n{self.draw.randrange(1, 400)}"
        return self.ask("DELETE", f"/v1/nodes/{name if self.draw.random() < 0.95 else self.quoted()}")

    def register(self) -> Request:
        fields = {"minimum": self.units, "maximum": self.units, "target": self.target, "priority": self.level}
        return self.ask("POST", "/v1/attached", {"name": self.new_name(self.attached), **self.some(fields)})

    def claimed_nodes(self) -> dict[str, Any]:
        names = [self.draw.choice(["n1", "n2", "n3", "n999", self.name()]) for _ in range(3)]
        return {name: self.within(0, 1e6, whole=True) for name in names}

    def advice(self) -> dict[str, Any]:
        figures = ("target_rate", "most_rate_now", "headroom", "batch_seconds", "max_offsets_per_trigger")
        limit = self.draw.choice(["state", "executors", "nothing", "odd", "<b>"])
        said = {"limit": limit, "what_to_do": self.name(), "evidence": [self.name()]}
        return {**said, **{key: self.large() for key in figures}}

    def report(self) -> Request:
        values = ("rate", "offered_rate", "backlog", "latency_ms", "busy")
        body: dict[str, Any] = {
            "held": self.within(0, 1e6, whole=True),
            "wanted": self.units(),
            "why": self.draw.choice(["", "more rows", "\x00\x1b[31m", "é" * 1500, "line\nline"]),
            "values": self.some(dict.fromkeys(values, self.large)),
        }
        fields: dict[str, Callable[[], Any]] = {
            "nodes": self.claimed_nodes,
            "advice": self.advice,
            "serial": lambda: self.within(-1, 2**53, whole=True),
        }
        return self.ask("POST", f"/v1/attached/{self.quoted(self.attached)}/reports", {**body, **self.some(fields)})

    def read(self) -> Request:
        name, number, again = self.quoted(), self.query_number(), self.query_number()
        scope = self.draw.choice(["operator", "thread", "partition", "node", "odd"])
        paths = [
            *("/v1/pipelines", f"/v1/pipelines/{name}", f"/v1/pipelines/{name}/log", f"/v1/pipelines/{name}/triggers"),
            *("/v1/nodes", "/v1/fairness", f"/v1/fairness?since={number}", "/v1/policy", "/metrics", "/health", "/"),
            *(f"/v1/decisions?since={number}&limit={again}", f"/v1/decisions?pipeline={name}&offset={number}"),
            *(f"/v1/events?limit={number}", f"/v1/events?pipeline={name}&since={number}", "/openapi.json", "/docs"),
            f"/v1/statistics/{name}?scope={scope}",
            f"/v1/statistics/{name}?metric={self.draw.choice(METRICS)}&since={number}",
            *(f"/v1/attached/{name}/advice", "/v1/views/start", "/v1/views/fleet", "/v1/views/cluster"),
            *(f"/v1/views/pipeline?name={name}", f"/v1/views/series?name={name}&metric=rate&seconds={number}"),
            f"/v1/views/decisions?pipeline={name}&limit={number}&before={again}",
        ]
        return self.ask("GET", self.draw.choice(paths), holder=self.draw.choice(["write", "read"]))

    def what_if(self) -> Request:
        large = self.draw.random() < 0.1
        asked = {
            "pipeline": self.quoted(),
            "nodes": self.draw.choice([1, 4, 0, "x", 10_000 if large else 8]),
            "seconds": self.draw.choice([1, 20, -1, 1800 if large else 10]),
            "rate": self.rate(),
            "priority": self.level(),
            "policy": self.draw.choice(POLICIES),
        }
        keys = self.draw.sample(sorted(asked), self.draw.randrange(2, 6))
        query = "&".join(f"{key}={quote(str(asked[key]), safe='%', errors='replace')}" for key in keys)
        return self.ask("GET", f"/v1/views/what-if?{query}", holder="read", seconds=2.0, leaves=True)

    def watch(self) -> Request:
        return self.ask("GET", "/v1/watch", holder="read", seconds=2.0, leaves=True)

    def login(self) -> Request:
        word = self.draw.choice(["x", "", "é", "x" * 5000])
        fields: dict[str, Callable[[], Any]] = {"token": lambda: word, "who": self.name, "code": lambda: word}
        return self.draw.choice(
            [
                self.ask("POST", "/login", self.some(fields), holder=None),
                self.ask("POST", "/login", {"token": "x", **self.some(fields)}, holder="write"),
                self.ask("POST", "/v1/login-codes", holder="read"),
                self.ask("POST", "/logout", holder="read"),
            ]
        )

    def wrong_door(self) -> Request:
        """A request that must be turned away: method, token, host, origin, size, encoding."""
        sound = self.draw.choice([self.submit, self.amend, self.read, self.policy, self.register])()
        holder = self.draw.choice(["write", "read", None, "x", "é", "write " * 500, "\u0661"])
        method = self.draw.choice(METHODS) if self.maybe() else sound.method
        end = self.draw.choice(["", "", "", "", "/", "?%00", "//", "/../..", "%ff"])
        header = self.draw.choice(HEADERS)
        return Request(method, sound.path + end, sound.body, holder, (header,), seconds=5.0, leaves=True)

    def wire(self) -> Request:
        """Bytes that are not quite HTTP; the client sends them and closes its side."""
        raw = self.draw.choice([*WIRE, self.draw.randbytes(self.draw.randrange(1, 2000))])
        return Request("GET", "(bytes)", raw=raw, holder=None, seconds=3.0, leaves=True)
