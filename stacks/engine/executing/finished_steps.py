"""Which step of one resource has to wait for a step of another."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpuform.stacks.engine.planning import Step


@dataclass(slots=True)
class FinishedSteps:
    """Lets a step wait for one of another resource.

    A dependent is made again only when its deletion is over, which is among the steps of what it
    depends on.
    """

    _over: dict[int, Step] = field(default_factory=dict)  # by id()
    _moved: threading.Condition = field(default_factory=threading.Condition)

    def end(self, steps: Iterable[Step]) -> None:
        """Nothing more is done of these steps, whether they were done or not."""
        with self._moved:
            self._over.update({id(step): step for step in steps})
            self._moved.notify_all()

    def wake(self) -> None:
        """Lets those who wait ask again whether they still have to."""
        with self._moved:
            self._moved.notify_all()

    def wait(self, step: Step, stopped: Callable[[], bool]) -> None:
        """Returns when the step is over, or the run is."""
        with self._moved:
            self._moved.wait_for(lambda: id(step) in self._over or stopped())
