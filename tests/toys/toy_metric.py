"""A metric of another package: Hits@2."""

from plogicnet.evaluation.metrics import Metric

HITS_AT_2 = Metric("hits_at_2", "Hits@2", lambda ranks: float((ranks <= 2).mean()))
