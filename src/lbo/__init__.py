"""Lifelong Bayesian optimisation: tune models again and again, and let each task profit from those before it."""

from lbo import models
from lbo.memory import Memory
from lbo.sampler import LBOSampler
from lbo.stream import Stream, streams

__all__ = ["LBOSampler", "Memory", "Stream", "models", "streams"]
__version__ = "0.1.0"
