"""Pure functions on float64 arrays, each with its derivative beside it; nothing here checks its arguments."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
