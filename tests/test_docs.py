"""Numbers that are typed in the docs are those of the code."""

from lbo.models import memory as _  # noqa: F401
