"""The models, their bounds, and the defences without which they break."""

from tests.models.checking import Model, Variant

TAKE_OVER = Model(
    spec="TakeOver",
    constants={
        "Owners": "{a, b}", "MaxEpoch": "3", "MaxTicks": "2", "MaxLost": "1", "MaxRetries": "1",
        "MaxCrashes": "1", "REINIT_AFTER_RETRY": "TRUE", "REINIT_AFTER_DISCONNECT": "TRUE",
        "CHECK_LOST_MARKERS": "TRUE", "JUDGE": '"look"', "RESTORE_AFTER_INIT": "TRUE",
        "RESTORE_STABLE": "TRUE", "STORE_AFTER_COMMIT": "TRUE", "PROVE_FIRST": "TRUE",
        "REPAIR_DIES": "FALSE",
    },
    small={"MaxEpoch": "2", "MaxTicks": "1"},
    model_values=("a", "b"),
    symmetry="Same",
    invariants=(
        "I2_OneDecision", "I3_NoTickLost", "I6_EpochsGrow", "I9_NobodyActsOnOldState",
        "I10_NoTornTransaction", "I10_AcknowledgedStays", "I11_StateIsTheFold",
    ),
    variants=(
        Variant("a late EndTxn ends the next transaction", {"REINIT_AFTER_RETRY": "FALSE"},
                "I10_NoTornTransaction"),
        Variant("hidden records are not looked for", {"CHECK_LOST_MARKERS": "FALSE"},
                "I10_NoTornTransaction"),
        Variant("hidden records are aborted unseen", {"JUDGE": '"abort"'}, "I3_NoTickLost"),
        Variant("hidden records are committed unseen", {"JUDGE": '"commit"'},
                "I10_NoTornTransaction"),
        Variant("initialised again without restoring", {"RESTORE_AFTER_INIT": "FALSE"},
                "I2_OneDecision"),
        Variant("restored up to the high watermark", {"RESTORE_STABLE": "FALSE"},
                "I3_NoTickLost"),
        Variant("the store is written before the commit", {"STORE_AFTER_COMMIT": "FALSE"},
                "I3_NoTickLost"),
        Variant("acts before its first mark", {"PROVE_FIRST": "FALSE"}, "I9_NobodyActsOnOldState"),
        Variant("goes on after a disconnect", {"REINIT_AFTER_DISCONNECT": "FALSE"},
                "I3_NoTickLost"),
        Variant("dies within the repair", {"REPAIR_DIES": "TRUE"}, "I3_NoTickLost"),
    ),
)  # fmt: skip

LEASES = Model(
    spec="Leases",
    constants={
        "Workers": "{a, b}", "TTL": "3", "MaxTime": "6", "MaxRuns": "2", "MaxDeliveries": "2",
        "MaxReports": "2", "MaxFreezes": "1", "MaxRestarts": "0", "MaxCancels": "1", "SKEW": "1",
        "MARGIN": "1", "TO_START": "1", "DRAIN_FIRST": "TRUE", "COUNT_FROM_SAID": "TRUE",
        "HEARD_IN_TIME": "TRUE", "NEWEST_ONLY": "TRUE", "HELD_UNTIL_CLOSED": "TRUE",
        "STOP_BEFORE_RETURN": "TRUE", "REMEMBERS": "TRUE",
    },
    small={"MaxRuns": "1", "MaxReports": "1", "MaxTime": "5", "MaxFreezes": "0"},
    model_values=("a", "b"),
    symmetry="Same",
    invariants=(
        "I4_NoOverlap", "I5_DeliveriesAreBounded", "I7_BelieverIsHolder", "I7_OneRunADelivery",
        "I8_TerminalOnce",
    ),
    variants=(
        Variant("a worker leaves no margin for clocks", {"MARGIN": "0"}, "I7_BelieverIsHolder"),
        Variant("clocks differ by more than the margin", {"SKEW": "2"}, "I7_BelieverIsHolder"),
        Variant("expired before every report was read", {"DRAIN_FIRST": "FALSE"},
                "I7_BelieverIsHolder"),
        # Longer leases, so that two moments lie between saying and hearing.
        Variant("renewed from when it was heard",
                {"COUNT_FROM_SAID": "FALSE", "TTL": "5", "MaxTime": "8", "MaxRuns": "1",
                 "MaxReports": "1", "MaxCancels": "0"}, "I7_BelieverIsHolder"),
        Variant("revived by a late acknowledgement", {"HEARD_IN_TIME": "FALSE"},
                "I7_BelieverIsHolder"),
        Variant("an older delivery's outcome counts", {"NEWEST_ONLY": "FALSE"},
                "I4_NoOverlap"),
        Variant("a cancel frees the job at once", {"HELD_UNTIL_CLOSED": "FALSE"}, "I4_NoOverlap"),
        Variant("given back while it runs", {"STOP_BEFORE_RETURN": "FALSE"}, "I4_NoOverlap"),
        Variant("an item is taken twice", {"REMEMBERS": "FALSE"}, "I7_BelieverIsHolder"),
    ),
)  # fmt: skip

SLOTS = Model(
    spec="Slots",
    constants={
        "Partitions": "{a, b}", "Places": "1", "MaxGrants": "2", "MaxSays": "3", "MaxEpochs": "1",
        "MaxOwners": "1", "MaxSilences": "0", "LOWERED_COUNTS": "TRUE",
        "OLD_GRANTS_IGNORED": "TRUE",
        "OLD_SAYINGS_IGNORED": "TRUE", "OTHER_EPOCHS_IGNORED": "TRUE",
        "SILENT_HELD_COUNTS": "TRUE", "LEASES_COUNTED": "TRUE", "GRANTS_KEPT": "TRUE",
        "WAITS_FOR_ANSWER": "TRUE",
    },
    small={"MaxSays": "1"},
    model_values=("a", "b"),
    symmetry="Same",
    invariants=("I17_NoMoreLeasesThanPlaces", "I14_CountedIsEnough"),
    variants=(
        Variant("what is taken back is free at once", {"LOWERED_COUNTS": "FALSE"},
                "I14_CountedIsEnough"),
        Variant("an overtaken grant counts", {"OLD_GRANTS_IGNORED": "FALSE"},
                "I14_CountedIsEnough"),
        Variant("an overtaken saying counts", {"OLD_SAYINGS_IGNORED": "FALSE"},
                "I14_CountedIsEnough"),
        Variant("a former owner's grant counts",
                {"OTHER_EPOCHS_IGNORED": "FALSE",
                 "MaxEpochs": "2", "MaxSays": "2"},
                "I14_CountedIsEnough"),
        Variant("a silent partition holds nothing",
                {"SILENT_HELD_COUNTS": "FALSE", "MaxSilences": "1",
                 "MaxEpochs": "2", "MaxSays": "2"},
                "I14_CountedIsEnough"),
        Variant("leases are not counted after a take-over",
                {"LEASES_COUNTED": "FALSE",
                 "MaxEpochs": "2", "MaxSays": "2"},
                "I14_CountedIsEnough"),
        Variant("grants are sent before they are kept", {"GRANTS_KEPT": "FALSE"},
                "I14_CountedIsEnough"),
        Variant("leases before the first grant", {"WAITS_FOR_ANSWER": "FALSE"},
                "I17_NoMoreLeasesThanPlaces"),
    ),
)  # fmt: skip

MODELS = (TAKE_OVER, LEASES, SLOTS)
