------------------------------ MODULE TakeOver ------------------------------
(***************************************************************************)
(* One partition and those who take it over: streams/takeover.py,          *)
(* streams/repair.py, streams/restore.py and streams/task.py over one      *)
(* transactional id. Nobody asks a group here: every owner may initialise  *)
(* at any moment, so whatever holds, holds for two owners at once, for     *)
(* zombies and for the stopped and continued.                              *)
(*                                                                         *)
(* A transaction decides one tick. It writes an event to "events", then    *)
(* its mark to "state", then asks for the commit (EndTxn). The client asks *)
(* again by itself after a disconnect; any copy may arrive late. A broker  *)
(* may lose the markers of an ended transaction in some topics; they then  *)
(* take the outcome of the next transaction that ends there.               *)
(*                                                                         *)
(* The constants in capitals of the second group switch defences off.      *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Owners,
    MaxEpoch,     \* initialisations and transaction time-outs
    MaxTicks,
    MaxLost,      \* ends whose markers are lost somewhere
    MaxRetries,   \* further copies of an EndTxn
    MaxCrashes

CONSTANTS
    REINIT_AFTER_RETRY,       \* a commit that the client asked for twice is doubted
    REINIT_AFTER_DISCONNECT,  \* so is what comes after the broker was away
    CHECK_LOST_MARKERS,       \* look for hidden records before restoring
    JUDGE,                    \* "look" first and then choose; or blindly "commit", "abort"
    RESTORE_AFTER_INIT,       \* read the changelog again after each initialisation
    RESTORE_STABLE,           \* and no further than to the last stable offset
    STORE_AFTER_COMMIT,       \* the local store follows the log, never leads
    PROVE_FIRST,              \* act on the state only once an own mark is committed
    REPAIR_DIES               \* a second fault: the owner dies within its repair

VARIABLES
    log,      \* topic -> records; st: "O"pen, "C"ommitted, "A"borted
    epoch,    \* of the transactional id
    ongoing,  \* topics that the coordinator has in the open transaction
    net,      \* copies of EndTxn under way: epoch -> number
    own,      \* each owner's memory
    store,    \* each owner's local store
    acked,    \* ticks whose commit was answered
    told,     \* the newest cursor that anybody acted on
    stale,    \* whether somebody acted on an older one
    lost, retries, crashes

vars == <<log, epoch, ongoing, net, own, store, acked, told, stale, lost, retries, crashes>>

Topics == {"events", "state"}
Epochs == 1..MaxEpoch

Nobody == [pc |-> "idle", ep |-> 0, cur |-> 0, seq |-> 0, warm |-> FALSE, doubt |-> FALSE,
           cut |-> FALSE, whole |-> FALSE, torn |-> {}]

Init ==
    /\ log = [t \in Topics |-> <<>>]
    /\ epoch = 0
    /\ ongoing = {}
    /\ net = [e \in Epochs |-> 0]
    /\ own = [o \in Owners |-> Nobody]
    /\ store = [o \in Owners |-> [cur |-> 0, seq |-> 0, off |-> 0]]
    /\ acked = {}
    /\ told = 0
    /\ stale = FALSE
    /\ lost = 0
    /\ retries = 0
    /\ crashes = 0

-----------------------------------------------------------------------------
(* What logs and brokers do *)

Max(S) == CHOOSE x \in S : \A y \in S : y <= x

Stable(t) ==  \* how many records a committed reader may see
    LET open == {i \in 1..Len(log[t]) : log[t][i].st = "O"}
    IN IF open = {} THEN Len(log[t]) ELSE (CHOOSE i \in open : \A j \in open : i <= j) - 1

Hidden(t) == {log[t][i] : i \in (Stable(t) + 1)..Len(log[t])}

Ended(l, topics, outcome) ==
    [t \in Topics |-> IF t \notin topics THEN l[t]
        ELSE [i \in 1..Len(l[t]) |->
                IF l[t][i].st = "O" THEN [l[t][i] EXCEPT !.st = outcome] ELSE l[t][i]]]

(* Subsets of topics whose markers are lost. *)
Losses(topics) == IF lost < MaxLost THEN SUBSET topics ELSE {{}}

Count(L) == IF L = {} THEN 0 ELSE 1

Put(l, t, r) == [l EXCEPT ![t] = Append(@, r)]

Rec(kind, o, tick, n) ==
    [k |-> kind, ep |-> own[o].ep, seq |-> own[o].seq + 1, tick |-> tick, n |-> n, st |-> "O"]

Fenced(o) == own[o].ep # epoch

GiveUp(o) == own' = [own EXCEPT ![o] = [@ EXCEPT
                        !.pc = "idle", !.doubt = FALSE, !.cut = FALSE, !.torn = {}]]

(* The broker was away: whoever is connected notices, if only after an answer came. *)
Disconnected(f, L) ==
    IF L = {} THEN f
    ELSE [o \in Owners |->
            CASE f[o].pc \in {"decide", "half", "full", "ending"} -> [f[o] EXCEPT !.doubt = TRUE]
              [] f[o].pc = "ended" -> [f[o] EXCEPT !.cut = TRUE]
              [] OTHER -> f[o]]

Others == UNCHANGED <<net, retries>>

(* A transaction that takes too long is ended like a take-over. *)
TimeOut ==
    /\ ongoing # {} /\ epoch < MaxEpoch
    /\ \E L \in Losses(ongoing) :
        /\ log' = Ended(log, ongoing \ L, "A")
        /\ lost' = lost + Count(L)
        /\ own' = Disconnected(own, L)
    /\ epoch' = epoch + 1
    /\ ongoing' = {}
    /\ UNCHANGED <<net, store, acked, told, stale, retries, crashes>>

(* An EndTxn arrives; whose answer it is, the owner cannot tell from the next one's. *)
Arrive(e) ==
    /\ net[e] > 0
    /\ net' = [net EXCEPT ![e] = @ - 1]
    /\ IF e = epoch /\ ongoing # {}
       THEN /\ \E L \in Losses(ongoing) :
                /\ log' = Ended(log, ongoing \ L, "C")
                /\ lost' = lost + Count(L)
                /\ own' = Disconnected(
                    [o \in Owners |-> IF own[o].pc = "ending" /\ own[o].ep = e
                                      THEN [own[o] EXCEPT !.pc = "ended"] ELSE own[o]], L)
            /\ ongoing' = {}
       ELSE UNCHANGED <<log, lost, own, ongoing>>
    /\ UNCHANGED <<epoch, store, acked, told, stale, retries, crashes>>

-----------------------------------------------------------------------------
(* Taking over *)

Initialise(o) ==
    /\ own[o].pc = "idle" /\ epoch < MaxEpoch
    /\ epoch' = epoch + 1
    /\ \E L \in Losses(ongoing) :
        /\ log' = Ended(log, ongoing \ L, "A")
        /\ lost' = lost + Count(L)
        /\ LET next == IF CHECK_LOST_MARKERS THEN "look"
                       ELSE IF ~RESTORE_AFTER_INIT /\ own[o].warm THEN "first" ELSE "restore"
           IN own' = [Disconnected(own, L) EXCEPT ![o] =
                        [@ EXCEPT !.pc = next, !.ep = epoch + 1, !.doubt = FALSE]]
    /\ ongoing' = {}
    /\ UNCHANGED <<store, acked, told, stale, crashes>> /\ Others

Restoring(o) == IF ~RESTORE_AFTER_INIT /\ own[o].warm THEN "first" ELSE "restore"

(* streams/repair.py: which outcome the hidden records should have. *)
Visible(t) == {log[t][i] : i \in {j \in 1..Stable(t) : log[t][j].st = "C"}}

Whole(torn) ==
    IF "state" \notin torn
    THEN \A r \in Hidden("events") : \E m \in Visible("state") : m.k = "mark" /\ r.seq <= m.seq
    ELSE LET tail == [i \in 1..(Len(log["state"]) - Stable("state")) |->
                        log["state"][Stable("state") + i]]
             marks == {i \in 1..Len(tail) : tail[i].k = "mark"}
             last == tail[Len(tail)]
         IN /\ last.k = "mark"
            /\ \/ Cardinality(marks) > 1
               \/ "events" \notin torn /\ \E r \in Visible("events") : r.seq = last.seq
               \/ Len(tail) + (IF "events" \in torn THEN Len(log["events"]) - Stable("events")
                               ELSE 0) = last.n

Look(o) ==
    /\ own[o].pc = "look"
    /\ LET torn == {t \in Topics : Stable(t) < Len(log[t])}
           whole == CASE JUDGE = "look" -> torn # {} /\ Whole(torn)
                      [] JUDGE = "commit" -> TRUE
                      [] JUDGE = "abort" -> FALSE
       IN own' = [own EXCEPT ![o] = [@ EXCEPT
                    !.pc = IF torn = {} THEN Restoring(o) ELSE "resolve",
                    !.torn = torn, !.whole = torn # {} /\ whole]]
    /\ UNCHANGED <<log, epoch, ongoing, store, acked, told, stale, lost, crashes>> /\ Others

(* One transaction with a touch in each torn topic. On the mark's topic a whole one is touched by
   its own mark, one transaction on. Written and ended at once: see REPAIR_DIES. *)
Touched(o) ==
    LET marks == {i \in 1..Len(log["state"]) : log["state"][i].k = "mark"}
        touch(t) == IF t = "state" /\ own[o].whole /\ marks # {}
                    THEN [log["state"][Max(marks)] EXCEPT
                            !.seq = @ + 1, !.ep = own[o].ep, !.n = Cardinality(own[o].torn),
                            !.st = "O"]
                    ELSE [k |-> "dummy", ep |-> own[o].ep, seq |-> 0, tick |-> 0, n |-> 0,
                          st |-> "O"]
    IN [t \in Topics |-> IF t \in own[o].torn THEN Append(log[t], touch(t)) ELSE log[t]]

Resolve(o) ==
    /\ own[o].pc = "resolve"
    /\ IF Fenced(o)
       THEN GiveUp(o) /\ UNCHANGED <<log, lost, ongoing, crashes>>
       ELSE \/ \E L \in Losses(own[o].torn) :
                /\ log' = Ended(Touched(o), own[o].torn \ L, IF own[o].whole THEN "C" ELSE "A")
                /\ lost' = lost + Count(L)
                /\ own' = [Disconnected(own, L) EXCEPT ![o] = [@ EXCEPT
                            !.pc = IF L = {} THEN Restoring(o) ELSE "idle", !.torn = {}]]
                /\ UNCHANGED <<ongoing, crashes>>
            \/ /\ REPAIR_DIES /\ crashes < MaxCrashes
               /\ log' = Touched(o)
               /\ ongoing' = own[o].torn
               /\ own' = [own EXCEPT ![o] = Nobody]
               /\ crashes' = crashes + 1
               /\ UNCHANGED lost
    /\ UNCHANGED <<epoch, store, acked, told, stale>> /\ Others

Restore(o) ==
    /\ own[o].pc = "restore"
    /\ LET s == log["state"]
           end == IF RESTORE_STABLE THEN Stable("state") ELSE Len(s)
           base == store[o]
           marks == {i \in (base.off + 1)..end :
                        s[i].k = "mark" /\ (s[i].st = "C" \/ (~RESTORE_STABLE /\ s[i].st = "O"))}
           now == IF marks = {} THEN [base EXCEPT !.off = IF end > @ THEN end ELSE @]
                  ELSE [cur |-> s[Max(marks)].tick, seq |-> s[Max(marks)].seq, off |-> end]
       IN /\ store' = [store EXCEPT ![o] = now]
          /\ own' = [own EXCEPT ![o] = [@ EXCEPT
                        !.pc = IF PROVE_FIRST THEN "first" ELSE "decide",
                        !.cur = now.cur, !.seq = now.seq, !.warm = TRUE]]
          \* Unproven, what is leased is sent to workers again at once.
          /\ IF PROVE_FIRST THEN UNCHANGED <<told, stale>>
             ELSE /\ stale' = (stale \/ now.cur < told)
                  /\ told' = IF now.cur > told THEN now.cur ELSE told
    /\ UNCHANGED <<log, epoch, ongoing, acked, lost, crashes>> /\ Others

(* The first mark: it decides nothing, and proves the epoch. Then workers and askers are told. *)
FirstMark(o) ==
    /\ own[o].pc = "first"
    /\ IF Fenced(o)
       THEN GiveUp(o) /\ UNCHANGED <<log, store, told, stale>>
       ELSE /\ log' = Ended(Put(log, "state", Rec("mark", o, own[o].cur, 1)), {"state"}, "C")
            /\ own' = [own EXCEPT ![o] = [@ EXCEPT !.pc = "decide", !.seq = @ + 1]]
            /\ store' = [store EXCEPT ![o] = [cur |-> own[o].cur, seq |-> own[o].seq + 1,
                                              off |-> Len(log["state"]) + 1]]
            /\ stale' = (stale \/ own[o].cur < told)
            /\ told' = IF own[o].cur > told THEN own[o].cur ELSE told
    /\ UNCHANGED <<epoch, ongoing, acked, lost, crashes>> /\ Others

-----------------------------------------------------------------------------
(* Deciding *)

Event(o) ==
    /\ own[o].pc = "decide" /\ own[o].cur < MaxTicks
    /\ IF Fenced(o) \/ (REINIT_AFTER_DISCONNECT /\ own[o].doubt)
       THEN GiveUp(o) /\ UNCHANGED <<log, ongoing>>
       ELSE /\ log' = Put(log, "events", Rec("event", o, own[o].cur + 1, 0))
            /\ ongoing' = ongoing \cup {"events"}
            /\ own' = [own EXCEPT ![o] = [@ EXCEPT !.pc = "half", !.doubt = FALSE]]
    /\ UNCHANGED <<epoch, store, acked, told, stale, lost, crashes>> /\ Others

Mark(o) ==
    /\ own[o].pc = "half"
    /\ IF Fenced(o)
       THEN GiveUp(o) /\ UNCHANGED <<log, ongoing, store>>
       ELSE /\ log' = Put(log, "state", Rec("mark", o, own[o].cur + 1, 2))
            /\ ongoing' = ongoing \cup {"state"}
            /\ own' = [own EXCEPT ![o] = [@ EXCEPT !.pc = "full"]]
            /\ IF STORE_AFTER_COMMIT THEN UNCHANGED store
               ELSE store' = [store EXCEPT ![o] = [cur |-> own[o].cur + 1, seq |-> own[o].seq + 1,
                                                   off |-> Len(log["state"]) + 1]]
    /\ UNCHANGED <<epoch, acked, told, stale, lost, crashes>> /\ Others

AskCommit(o) ==
    /\ own[o].pc = "full"
    /\ own' = [own EXCEPT ![o] = [@ EXCEPT !.pc = "ending"]]
    /\ net' = [net EXCEPT ![own[o].ep] = @ + 1]
    /\ UNCHANGED <<log, epoch, ongoing, store, acked, told, stale, lost, retries, crashes>>

(* The client lost the connection and asks again, on its own. *)
AskAgain(o) ==
    /\ own[o].pc \in {"ending", "ended"} /\ retries < MaxRetries
    /\ retries' = retries + 1
    /\ net' = [net EXCEPT ![own[o].ep] = @ + 1]
    /\ own' = [own EXCEPT ![o] = [@ EXCEPT !.doubt = TRUE]]
    /\ UNCHANGED <<log, epoch, ongoing, store, acked, told, stale, lost, crashes>>

(* The answer: the commit is done. It is followed by the store; then others may be told. *)
Answered(o) ==
    /\ own[o].pc = "ended"
    /\ IF own[o].doubt /\ REINIT_AFTER_RETRY
       THEN GiveUp(o) /\ UNCHANGED <<store, acked, told, stale>>
       ELSE /\ acked' = acked \cup {own[o].cur + 1}
            /\ own' = [own EXCEPT ![o] = [@ EXCEPT
                        !.pc = "decide", !.cur = @ + 1, !.seq = @ + 1,
                        !.doubt = own[o].cut, !.cut = FALSE]]
            /\ LET at == {i \in 1..Len(log["state"]) : log["state"][i].ep = own[o].ep}
               IN store' = [store EXCEPT ![o] = [cur |-> own[o].cur + 1, seq |-> own[o].seq + 1,
                                                 off |-> Max(at)]]
            /\ told' = IF own[o].cur + 1 > told THEN own[o].cur + 1 ELSE told
            /\ UNCHANGED stale
    /\ UNCHANGED <<log, epoch, ongoing, lost, crashes>> /\ Others

(* No answer came in time, or the answer is that another owner is there. *)
Doubt(o) ==
    /\ own[o].pc \in {"ending", "ended"}
    /\ GiveUp(o)
    /\ UNCHANGED <<log, epoch, ongoing, store, acked, told, stale, lost, crashes>> /\ Others

Crash(o) ==
    /\ own[o].pc # "idle" /\ crashes < MaxCrashes
    /\ own' = [own EXCEPT ![o] = Nobody]
    /\ crashes' = crashes + 1
    /\ UNCHANGED <<log, epoch, ongoing, store, acked, told, stale, lost>> /\ Others

Next ==
    \/ TimeOut
    \/ \E e \in Epochs : Arrive(e)
    \/ \E o \in Owners :
        \/ Initialise(o) \/ Look(o) \/ Resolve(o) \/ Restore(o) \/ FirstMark(o)
        \/ Event(o) \/ Mark(o) \/ AskCommit(o) \/ AskAgain(o) \/ Answered(o) \/ Doubt(o)
        \/ Crash(o)

Spec == Init /\ [][Next]_vars

Same == Permutations(Owners)

-----------------------------------------------------------------------------
(* What must hold. Readers see what is committed; what an owner did is judged once it decides. *)

Seen(t) == {i \in 1..Len(log[t]) : log[t][i].st = "C"}

Deciding == {o \in Owners : own[o].pc = "decide" /\ ~own[o].doubt /\ ~Fenced(o)}

(* At most one committed decision per occurrence. *)
I2_OneDecision ==
    \A i, j \in Seen("events") :
        log["events"][i].k = "event" /\ log["events"][j].k = "event"
        /\ log["events"][i].tick = log["events"][j].tick => i = j

(* Every tick up to the cursor is decided. *)
I3_NoTickLost ==
    \A o \in Deciding : \A tick \in 1..own[o].cur :
        \E i \in Seen("events") : log["events"][i].k = "event" /\ log["events"][i].tick = tick

(* Epochs only grow: behind a later owner's record nothing of an earlier one is committed. *)
I6_EpochsGrow ==
    \A t \in Topics : \A i, j \in Seen(t) : i < j => log[t][i].ep <= log[t][j].ep

(* Nobody acts on a state that is older than one that was acted on. *)
I9_NobodyActsOnOldState == ~stale

(* No transaction is visible in part. *)
I10_NoTornTransaction ==
    Deciding # {} =>
        /\ \A i \in Seen("events") : log["events"][i].k = "event" =>
            \E j \in Seen("state") :
                log["state"][j].k = "mark" /\ log["state"][j].tick = log["events"][i].tick
        /\ \A j \in Seen("state") : log["state"][j].n = 2 =>
            \E i \in Seen("events") : log["events"][i].k = "event"
                /\ log["events"][i].tick = log["state"][j].tick

(* What was acknowledged stays. *)
I10_AcknowledgedStays ==
    \A o \in Deciding : \A tick \in acked :
        \E i \in Seen("events") : log["events"][i].k = "event" /\ log["events"][i].tick = tick

(* The owner's state and its store are what the changelog gives. *)
I11_StateIsTheFold ==
    \A o \in Deciding :
        LET marks == {i \in Seen("state") : log["state"][i].k = "mark"}
            cur == IF marks = {} THEN 0 ELSE log["state"][Max(marks)].tick
        IN own[o].cur = cur /\ store[o].cur = cur
=============================================================================
