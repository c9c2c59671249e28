"""The systems that can be trained: pLogicNet, and three baselines of its paper.

All systems use the same rules, neural models and run files. A system is imported when it is first used.
"""

from plogicnet.config import SYSTEMS

SYSTEMS.register("plogicnet", "plogicnet.systems.system:PLOGICNET")
SYSTEMS.register("blp", "plogicnet.systems.blp:BLP")
SYSTEMS.register("ruge", "plogicnet.systems.ruge:RUGE")
SYSTEMS.register("nne_aer", "plogicnet.systems.nne_aer:NNE_AER")
