"""A durable, ordered log for each worker, and the small tables that change with it.

`entry` names every entry, `codec` its bytes, `store` orders and commits them, `reader` reads them
back, `lmdb_engine` and `memory_engine` keep them. Knows nothing of WebAssembly, of an event loop or
of who executes a worker.
"""
