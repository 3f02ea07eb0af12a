"""The codecs of every record, made once at import."""

from collections.abc import Mapping
from typing import Any, Final

from .codec import Codec
from .commands import CancelExecution, DeleteJob, PauseJob, PutJob, ResumeJob, TriggerJob
from .events import ExecutionFired, ExecutionMoved, InputLost, JobChanged, Quarantined, TicksMissed
from .leases import ReportBatch, WorkBatch
from .replies import Accepted, Refused
from .slots import SlotsGranted, SlotState, SlotsWanted, WorkerOffer
from .state import JobDefinition, JobIds, JobState, Mark

PUT_JOB: Final = Codec(PutJob)
PAUSE_JOB: Final = Codec(PauseJob)
RESUME_JOB: Final = Codec(ResumeJob)
DELETE_JOB: Final = Codec(DeleteJob)
TRIGGER_JOB: Final = Codec(TriggerJob)
CANCEL_EXECUTION: Final = Codec(CancelExecution)
ACCEPTED: Final = Codec(Accepted)
REFUSED: Final = Codec(Refused)
JOB_DEFINITION: Final = Codec(JobDefinition)
JOB_STATE: Final = Codec(JobState)
JOB_IDS: Final = Codec(JobIds)
MARK: Final = Codec(Mark)
EXECUTION_FIRED: Final = Codec(ExecutionFired)
EXECUTION_MOVED: Final = Codec(ExecutionMoved)
TICKS_MISSED: Final = Codec(TicksMissed)
INPUT_LOST: Final = Codec(InputLost)
JOB_CHANGED: Final = Codec(JobChanged)
QUARANTINED: Final = Codec(Quarantined)
WORK_BATCH: Final = Codec(WorkBatch)
REPORT_BATCH: Final = Codec(ReportBatch)
WORKER_OFFER: Final = Codec(WorkerOffer)
SLOTS_WANTED: Final = Codec(SlotsWanted)
SLOTS_GRANTED: Final = Codec(SlotsGranted)
SLOT_STATE: Final = Codec(SlotState)

COMMANDS: Final[Mapping[str, Codec[Any]]] = {
    "PutJob": PUT_JOB,
    "PauseJob": PAUSE_JOB,
    "ResumeJob": RESUME_JOB,
    "DeleteJob": DELETE_JOB,
    "TriggerJob": TRIGGER_JOB,
    "CancelExecution": CANCEL_EXECUTION,
}
"""Schema name → codec, for the topic `commands`."""
EVENTS: Final[Mapping[str, Codec[Any]]] = {
    "ExecutionFired": EXECUTION_FIRED,
    "ExecutionMoved": EXECUTION_MOVED,
    "TicksMissed": TICKS_MISSED,
    "InputLost": INPUT_LOST,
}
"""Schema name → codec, for the topic `executions`."""
