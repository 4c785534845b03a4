# What `penstock.testing` exports: the one list of it.

from .clock import ManualClock as ManualClock
from .clusters import broker_down as broker_down
from .clusters import broker_up as broker_up
from .clusters import cluster as cluster
from .clusters import node as node
from .clusters import running_broker as running_broker
from .clusters import running_cluster as running_cluster
from .controller import ControllerBench as ControllerBench
from .controller import RatePerUnit as RatePerUnit
from .models import flat_model as flat_model
from .models import flat_models as flat_models
from .plant import LoadTrace as LoadTrace
from .plant import Plant as Plant
from .plant import Site as Site
from .plant import site as site
from .plant import traffic as traffic
from .plant import traffic_of as traffic_of
from .rows import DeadRow as DeadRow
from .rows import RowsOutput as RowsOutput
from .rows import run_rows as run_rows
