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

# --- one transaction --------------------------------------------------------------------------
COMMANDS_PER_STEP_MAX: Final = 1_000
FIRES_PER_STEP_MAX: Final = 2_000
REPORTS_PER_STEP_MAX: Final = 4_000
TRANSACTION_RECORDS_MAX: Final = 20_000
TRANSACTION_BYTES_MAX: Final = 16 * 1_048_576

# --- buffers and caches -----------------------------------------------------------------------
INPUT_BUFFER_RECORDS_MAX: Final = 4_000
"""Records of one input held for a task; beyond, the input is paused."""
WHEEL_SECONDS: Final = 60
WHEEL_KEYS_PER_TENANT_SECOND_MAX: Final = 4_096
WHEEL_KEYS_MAX: Final = 131_072
"""Keys a partition holds in memory."""
JOB_CACHE_MAX: Final = 262_144
"""Decoded jobs a process holds; about 1 KB each."""
OUTBOX_FLUSH_S: Final = 5.0

# --- time -------------------------------------------------------------------------------------
PACE_MS: Final = 4
"""Back to back a transaction runs into retries of the last one's markers."""
IDLE_MARK_MS: Final = 5_000
UNOWNED_AFTER_MS: Final = 15_000
CLOCK_SKEW_MS_MAX: Final = 2_000
CLOCK_ALONE_AGREEMENT_MS: Final = 30_000
CLOCK_GIVE_UP_MS: Final = 10_000
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
# A dead owner's transaction must be over before the group would give up a live, slow one.
assert SESSION_MS < TRANSACTION_MS_MAX < POLL_INTERVAL_MS_MAX
assert IDLE_MARK_MS * 3 <= UNOWNED_AFTER_MS
assert TOPIC_ACK_MS < TRANSACTION_MS_MAX
assert PAYLOAD_BYTES_MAX < COMMAND_BYTES_MAX
assert COMMANDS_PER_STEP_MAX * 8 <= TRANSACTION_RECORDS_MAX
