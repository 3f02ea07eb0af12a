"""The models, their bounds, and the defences without which they break."""

from .checking import Model, Variant

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

MODELS = (TAKE_OVER,)
