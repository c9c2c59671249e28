"""What can be trained: pLogicNet, and the other systems of the paper's tables on the same rules, models and run files.

Light to import: a system is imported when it is first used.
"""

from plogicnet.config import SYSTEMS

SYSTEMS.register("plogicnet", "plogicnet.systems.system:PLOGICNET")
SYSTEMS.register("blp", "plogicnet.systems.blp:BLP")
SYSTEMS.register("ruge", "plogicnet.systems.ruge:RUGE")
SYSTEMS.register("nne_aer", "plogicnet.systems.nne_aer:NNE_AER")
