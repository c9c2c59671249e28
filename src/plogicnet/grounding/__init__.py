"""Mining and grounding of rules: the engine interface and the built-in engines.

The built-in engines are registered here and imported on first use.
"""

from plogicnet.config import ENGINES

ENGINES.register("native", "plogicnet.grounding.native.engine:NATIVE")
ENGINES.register("sql", "plogicnet.grounding.sql.duckdb:SQL")
