"""Remember from one run of the daemon to the next, in one SQLite file; API keys, in a file of their own.

    with Database.open(places.database) as database:   # the daemon: one process writes
        Footprints(database).record(observation)
    with Database.read(places.database) as database:   # anybody else, at the same time
        Footprints(database).find(model)

Calls block for as long as the disk takes: the daemon makes them in a thread. A database may be used by several threads.
"""

from supervisor.store.database import Database
from supervisor.store.footprints import Footprints
from supervisor.store.load_times import LoadTime, LoadTimes
from supervisor.store.loaded import LoadedModel, LoadedModels

__all__ = ["Database", "Footprints", "LoadTime", "LoadTimes", "LoadedModel", "LoadedModels"]
