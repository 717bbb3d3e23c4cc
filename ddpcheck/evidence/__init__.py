"""What a watched process writes down while a script runs: facts, one record after the other.

Nothing here imports torch.
"""

from __future__ import annotations

from ddpcheck.evidence.data import *
from ddpcheck.evidence.files import *
from ddpcheck.evidence.framing import *
from ddpcheck.evidence.gradient_norms import *
from ddpcheck.evidence.groups import *
from ddpcheck.evidence.layouts import *
from ddpcheck.evidence.loss_weights import *
from ddpcheck.evidence.moments import *
from ddpcheck.evidence.optimizers import *
from ddpcheck.evidence.processes import *
from ddpcheck.evidence.recomputation import *
from ddpcheck.evidence.record import *
from ddpcheck.evidence.saved_state import *
from ddpcheck.evidence.sequences import *
from ddpcheck.evidence.spans import *
from ddpcheck.evidence.windows import *
from ddpcheck.evidence.wrappers import *
