"""What the pool logs of our connections, told once instead of with every try."""

from __future__ import annotations

import logging
from typing import Final

from agentlightning_postgres.connection import StoreConnection

logger = logging.getLogger("agentlightning.store.postgres")

POOL_PREFIX: Final = "agentlightning-"
"""How the names of our pools begin."""

_POOL_LOGGER: Final = "psycopg.pool"


class _AsDetails(logging.Filter):
    """Passes what the pool says of our connections on to our own log, as details.

    During an outage it warns of each broken connection and each try to replace one. The calls that fail
    meanwhile raise what is to be known of it. What other pools of the program say is left alone.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is another pool's."""
        told = record.args if isinstance(record.args, tuple) else ()
        if not any(_is_ours(item) for item in told):
            return True
        logger.debug("psycopg's pool: %s", record.getMessage())
        return False


def keep_quiet() -> None:
    """See to it; harmless when repeated."""
    pool_logger = logging.getLogger(_POOL_LOGGER)
    if not any(isinstance(item, _AsDetails) for item in pool_logger.filters):
        pool_logger.addFilter(_AsDetails())


def _is_ours(item: object) -> bool:
    return isinstance(item, StoreConnection) or (isinstance(item, str) and item.startswith(POOL_PREFIX))
