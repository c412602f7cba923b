"""Every kind that is described, in the order of the catalogue."""

from conformance.described import Described
from conformance.together_kinds import CLUSTER, SHARED_VOLUME

KINDS: tuple[Described, ...] = (CLUSTER, SHARED_VOLUME)
