"""Every bound in one place, with how the bounds depend on each other."""

from typing import Final

# --- what users may write ---------------------------------------------------------------------
TENANT_CHARS_MAX: Final = 63
JOB_CHARS_MAX: Final = 128
NAME_CHARS_MAX: Final = 256
NOTE_CHARS_MAX: Final = 1_024
COMMAND_ID_CHARS_MAX: Final = 128
SCHEDULES_MAX: Final = 10
PAYLOAD_BYTES_MAX: Final = 65_536
HEADERS_MAX: Final = 32
HEADER_BYTES_MAX: Final = 4_096
TOPIC_CHARS_MAX: Final = 249
TARGET_KEY_BYTES_MAX: Final = 1_024
COMMAND_BYTES_MAX: Final = 262_144
"""A command record; a larger one is refused without being read."""
EVERY_MS_MIN: Final = 1_000
LATE_TOLERANCE_MS_DEFAULT: Final = 60_000
LATE_TOLERANCE_MS_MAX: Final = 86_400_000
JITTER_MS_MAX: Final = 86_400_000
START_DEADLINE_MS_MIN: Final = 1_000
START_DEADLINE_MS_MAX: Final = 366 * 86_400_000
MISSED_LIMIT_DEFAULT: Final = 100
MISSED_LIMIT_MAX: Final = 1_000
MAX_RUNS_MAX: Final = 1_000_000_000
EXCLUDED_SETS_MAX: Final = 10
EXCLUDED_DATES_MAX: Final = 500
"""Dates and weekly windows of one set."""

HANDLER_CHARS_MAX: Final = 128
POOLS_BUILT: Final = ("default", "http")
"""Pools there are, until pools can be made."""
URL_CHARS_MAX: Final = 2_048
HTTP_TIMEOUT_MS_DEFAULT: Final = 30_000
HTTP_TIMEOUT_MS_MAX: Final = 15 * 60_000
MAX_DURATION_MS: Final = 6 * 3_600_000
"""Default and most of `max_duration`."""
MAX_DELIVERIES: Final = 3
"""Leases of one attempt that may be lost; then it is dead."""
OPEN_EXECUTIONS_MAX: Final = 8
"""Open executions in a job's own record."""

# --- what is remembered -----------------------------------------------------------------------
COMMAND_ID_MS: Final = 3_600_000
"""A command id takes effect once within this time of its first appearance."""
COMMAND_IDS_INLINE_MAX: Final = 16
COMMAND_IDS_MAX: Final = 1_000
FORGET_DELETED_MS: Final = 7 * 86_400_000
KEEP_FINISHED_MS: Final = 86_400_000
KEEP_FINISHED_ONE_OFF_MS: Final = 3_600_000
QUARANTINE_VALUE_BYTES_MAX: Final = 65_536
MISSED_COUNT_MAX: Final = 100_000
"""Ticks passed over are counted exactly up to here; beyond, the count is a lower bound."""

# --- ticks that are late ----------------------------------------------------------------------
ON_TIME_MS: Final = 1_000
"""A tick is on time within this, however small `late_tolerance` is."""
CATCH_UP_PACE_MS: Final = 100
"""Between two ticks of one job that are caught up."""
CATCH_UP_LOOK_MS_MIN: Final = 1_000
CATCH_UP_LOOK_MS_MAX: Final = 60_000
"""How often a tick to be caught up looks whether the execution before it is over."""

# --- one transaction --------------------------------------------------------------------------
COMMANDS_PER_STEP_MAX: Final = 1_000
FIRES_PER_STEP_MAX: Final = 2_000
TRANSACTION_RECORDS_MAX: Final = 20_000
"""A step takes no further input with half of it; one input adds at most three for each report."""
TRANSACTION_BYTES_MAX: Final = 16 * 1_048_576

# --- buffers and caches -----------------------------------------------------------------------
INPUT_BUFFER_RECORDS_MAX: Final = 4_000
"""Records of one input held for a task; beyond, the input is paused."""
WHEEL_SECONDS: Final = 60
WHEEL_KEYS_PER_TENANT_SECOND_MAX: Final = 4_096
WHEEL_KEYS_MAX: Final = 131_072
"""Keys a partition holds in memory."""
JOB_CACHE_MAX: Final = 131_072
"""Decoded jobs a process holds; about 1 KB each."""
JOB_CACHE_AHEAD_MS: Final = 2 * 3_600_000
"""Jobs that are due later are not held, so that the hourly ones find room."""
OUTBOX_FLUSH_S: Final = 5.0

# --- leases -----------------------------------------------------------------------------------
LEASE_MS: Final = 60_000
RESEND_MS: Final = 5_000
"""A lease that no report has named is sent again after this time."""
QUEUE_KEYS_MAX: Final = 100_000
WORK_BATCH_ITEMS_MAX: Final = 500

# --- time -------------------------------------------------------------------------------------
PACE_MS: Final = 4
"""Back to back a transaction runs into retries of the last one's markers."""
IDLE_MARK_MS: Final = 5_000
UNOWNED_AFTER_MS: Final = 15_000
CLOCK_SKEW_MS_MAX: Final = 2_000
CLOCK_ALONE_AGREEMENT_MS: Final = 30_000
CLOCK_GIVE_UP_MS: Final = 10_000
CLOCK_REJOIN_MS_MIN: Final = 60_000
CLOCK_REJOIN_MS_MAX: Final = 120_000
"""How long a process that gave its partitions up because of its clock stays out of the group."""
CATCH_UP_MS_MAX: Final = 2_000
"""After a take-over, commands already in the log come before timers for at most this long."""
TOPIC_ACK_MS: Final = 2_000
TOPIC_SUSPENDED_MS_MIN: Final = 5_000
TOPIC_SUSPENDED_MS_MAX: Final = 60_000
TAKE_OVER_BACK_OFF_MS_MIN: Final = 100
TAKE_OVER_BACK_OFF_MS_MAX: Final = 5_000
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_000
TRANSACTION_MS_MAX: Final = 10_000
POLL_INTERVAL_MS_MAX: Final = 15_000
WATCHDOG_MS: Final = 15_000
DRAIN_S: Final = 10.0
GROUP_OFFSETS_EVERY_MS: Final = 5_000

assert HEARTBEAT_MS * 3 <= SESSION_MS
# What catches up gets on, also with ticks a second apart.
assert CATCH_UP_PACE_MS * 2 <= EVERY_MS_MIN
assert START_DEADLINE_MS_MIN >= ON_TIME_MS
# A dead owner's transaction must be over before the group would give up a live, slow one.
assert SESSION_MS < TRANSACTION_MS_MAX < POLL_INTERVAL_MS_MAX
assert IDLE_MARK_MS * 3 <= UNOWNED_AFTER_MS
assert TOPIC_ACK_MS < TRANSACTION_MS_MAX
assert PAYLOAD_BYTES_MAX < COMMAND_BYTES_MAX
assert COMMANDS_PER_STEP_MAX * 8 <= TRANSACTION_RECORDS_MAX

# --- workers ----------------------------------------------------------------------------------
LEASE_MS_MIN: Final = 1_000
RENEWALS_PER_LEASE: Final = 3
LEASE_MARGIN_MS_MAX: Final = 5_000
LEASE_MARGIN_SHARE: Final = 6
"""A worker gives a lease up this share of its length before its end, but at most the above."""
LEASE_TO_START_SHARE: Final = 6
"""Nothing is started on a lease of which less than this share is left."""
SWEEPS_PER_LEASE: Final = 60
SWEEP_MS_MAX: Final = 250
HOLD_MS_MAX: Final = 2_000
"""An item that comes further ahead of its time is returned: one of the two clocks is wrong."""
STARTED_MS: Final = 1_000
"""A run that takes longer is reported as started."""
CANCEL_GRACE_MS: Final = 10_000
WORKER_DRAIN_MS: Final = 30_000
WORKER_DRAIN_MS_MAX: Final = 6 * 3_600_000
WORKER_FLUSH_MS: Final = 5_000
OFFER_EVERY_MS: Final = 5_000
OFFERS_PER_LEASE: Final = 4
"""Where leases are short, offers are more frequent."""
OFFER_CHANGED_MS_MIN: Final = 100
LOG_SILENT_MS: Final = 5_000
"""When the log has left something unanswered for so long, a worker starts nothing new."""
AHEAD_MS: Final = 20
AHEAD_MAX: Final = 4_000
PLACES_DEFAULT: Final = 20
PLACES_HTTP_DEFAULT: Final = 200
PLACES_MAX: Final = 10_000
REPORT_EVERY_MS: Final = 5
REPORTS_PER_BATCH_MAX: Final = 1_000
REPORT_BATCH_BYTES_MAX: Final = 524_288
REMEMBERED_MAX: Final = 200_000
"""Closed leases a worker remembers, for at most twice the length of a lease."""
RESULT_BYTES_MAX: Final = 4_096
DETAIL_BYTES_MAX: Final = 4_096
PROGRESS_BYTES_MAX: Final = 1_024
PROGRESS_MS_MIN: Final = 1_000
"""Progress of one run is told to the log at most this often."""
RESPONSE_READ_BYTES_MAX: Final = 65_536
RETIRED_PROCESSES_MAX: Final = 4
"""Processes kept for their other runs after one of their handlers would not stop."""

# The worker's view of a lease ends before the scheduler's, whose clock runs until its end.
assert SWEEPS_PER_LEASE > 2 * LEASE_MARGIN_SHARE
assert SWEEP_MS_MAX < LEASE_MARGIN_MS_MAX
# What is started has longer than the margin to be renewed.
assert LEASE_TO_START_SHARE <= LEASE_MARGIN_SHARE
assert RENEWALS_PER_LEASE < LEASE_MARGIN_SHARE
assert LEASE_MS_MIN <= LEASE_MS
assert REPORTS_PER_BATCH_MAX * 3 <= TRANSACTION_RECORDS_MAX // 2
assert RESULT_BYTES_MAX + DETAIL_BYTES_MAX + PROGRESS_BYTES_MAX < REPORT_BATCH_BYTES_MAX

# --- the gateway ------------------------------------------------------------------------------
REQUEST_BYTES_MAX: Final = 200_000
"""Body of a request: a command record, less its envelope."""
URL_BYTES_MAX: Final = 8_192
PAGE_ITEMS_DEFAULT: Final = 100
PAGE_ITEMS_MAX: Final = 1_000
ANSWER_WAIT_S_DEFAULT: Final = 10.0
ANSWER_WAIT_S_MAX: Final = 30.0
"""How long a write waits for the scheduler before it answers that it does not know."""
READ_WAIT_S_MAX: Final = 10.0
"""How long a read waits until what was written is seen."""
WRITES_IN_FLIGHT_MAX: Final = 5_000
READS_WAITING_MAX: Final = 5_000
PREVIEWS_MAX: Final = 100
PATCH_TRIES_MAX: Final = 5
PATCH_DEPTH_MAX: Final = 32
WATCHERS_MAX: Final = 200
"""Streams of changes that are open at a time."""
WATCH_EVERY_S: Final = 0.25
"""A stream tells of changes at most this often."""
WATCH_ALIVE_S: Final = 15.0
TIMELINES_READ_MAX: Final = 4
"""Reads of old executions from the log that go on at a time."""
VIEW_BYTES_MAX: Final = 2 * 1_073_741_824
"""Jobs that a gateway holds, as the log has them; those beyond are not found, and it says so."""
VIEW_EXECUTIONS_MAX: Final = 50_000
VIEW_EVENTS_PER_EXECUTION_MAX: Final = 50
VIEW_DETAIL_CHARS_MAX: Final = 500
VIEW_TAIL_RECORDS: Final = 20_000
"""Records of each partition of `executions` that a gateway begins with."""
CONNECTIONS_MAX: Final = 2_000
PROBE_REQUEST_S: Final = 5.0

assert REQUEST_BYTES_MAX < COMMAND_BYTES_MAX
assert PAYLOAD_BYTES_MAX * 4 // 3 < REQUEST_BYTES_MAX
