"""From rules and a graph to mined rules, hidden triples and groundings; engines do the work.

Light to import: an engine is imported when it is first used.
"""

from plogicnet.config import ENGINES

ENGINES.register("native", "plogicnet.grounding.native.engine:NATIVE")
ENGINES.register("sql", "plogicnet.grounding.sql.duckdb:SQL")
