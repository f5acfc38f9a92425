"""BLAS on one thread: the matrices of an ask are small, and the other cores belong to the user's training."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread."""
    limit: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> ThreadpoolController:
    # Finding the loaded libraries takes milliseconds; NumPy's and SciPy's are there once lbo is imported.
    return ThreadpoolController()
