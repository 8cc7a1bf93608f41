"""What the ground under a store can do at most, measured in the same run as the store.

A figure that misses its aim is explained by one of these, or it is not explained.
"""

from benchmarks.store.limits.http import of_http
from benchmarks.store.limits.postgres import of_postgres
from benchmarks.store.limits.sqlite import of_sqlite

OF = {"sqlite": of_sqlite, "postgres": of_postgres, "http_sqlite": of_http}
