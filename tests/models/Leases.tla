------------------------------- MODULE Leases -------------------------------
(***************************************************************************)
(* One job under `forbid`, its scheduler partition and its workers:        *)
(* processors/core/executions.py, processors/leasing.py, workers/lease.py  *)
(* and workers/outgoing.py. What owners do to each other is TakeOver's.    *)
(*                                                                         *)
(* Items may be lost, late and repeated: they stay in the inbox, and a     *)
(* worker may read each at any time, or never. Reports are a log. A worker *)
(* may be stopped (SIGSTOP) and go on; user code runs in a child and does  *)
(* not stop with it. The scheduler's clock is up to SKEW ahead of the      *)
(* broker's and may change with its owner.                                 *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Workers,
    TTL,
    MaxTime,
    MaxRuns,        \* executions of the job, one after the other
    MaxDeliveries,  \* of each
    MaxReports,
    MaxFreezes,
    MaxRestarts,    \* of the scheduler
    MaxCancels,
    SKEW

CONSTANTS
    MARGIN,              \* a worker gives its lease up so much before its end
    TO_START,            \* and does not start when less than this is left
    DRAIN_FIRST,         \* expiry waits for every report up to then
    COUNT_FROM_SAID,     \* a renewal counts from before the heartbeat was sent
    HEARD_IN_TIME,       \* and only if its acknowledgement comes before the lease is given up
    NEWEST_ONLY,         \* only reports of the latest delivery count
    HELD_UNTIL_CLOSED,   \* a cancelled execution keeps the job's lock until its lease is closed
    STOP_BEFORE_RETURN,  \* a lease is given back when its run has ended, not before
    REMEMBERS            \* a worker takes no item twice

VARIABLES
    now,
    skew,      \* of the scheduler's clock
    ask,       \* the end of the reports, and when it was asked for
    ex,        \* the job's newest execution, as committed
    inbox,
    reports, read,
    pend,      \* reports that were made and are not in the log
    wk,        \* each worker: its lease, its heartbeat under way
    runs,      \* user code that runs
    rem,       \* items that were taken, by worker
    lostD,     \* deliveries whose lease expired
    terms,     \* terminal decisions of each execution
    begun,     \* fences in the order of beginning
    freezes, restarts, cancels

vars == <<now, skew, ask, ex, inbox, reports, read, pend, wk, runs, rem, lostD, terms, begun,
          freezes, restarts, cancels>>

NoAsk == [at |-> 0, end |-> 0, set |-> FALSE]
NoLease == [x |-> 0, d |-> 0, fence |-> 0, ends |-> 0]
NoBeat == [said |-> 0, x |-> 0, d |-> 0, stage |-> "none"]

Init ==
    /\ now = 1
    /\ skew \in 0..SKEW
    /\ ask = NoAsk
    /\ ex = [x |-> 1, st |-> "queued", w |-> "", d |-> 0, until |-> 0, lost |-> 0, fence |-> 0]
    /\ inbox = {}
    /\ reports = <<>>
    /\ read = 0
    /\ pend = {}
    /\ wk = [w \in Workers |-> [h |-> NoLease, beat |-> NoBeat, frozen |-> FALSE]]
    /\ runs = {}
    /\ rem = [w \in Workers |-> {}]
    /\ lostD = {}
    /\ terms = [x \in 1..MaxRuns |-> 0]
    /\ begun = 0
    /\ freezes = 0
    /\ restarts = 0
    /\ cancels = 0

Clock == now + skew
Holds(w) == wk[w].h.x # 0
GivenUpAt(h) == h.ends - MARGIN
Believes(w) == ~wk[w].frozen /\ Holds(w) /\ now < GivenUpAt(wk[w].h)
RunOf(w, h) == [w |-> w, x |-> h.x, d |-> h.d]
Report(k, w, x, d) == [k |-> k, w |-> w, x |-> x, d |-> d]
Larger(a, b) == IF a > b THEN a ELSE b

-----------------------------------------------------------------------------
(* Time. A worker that is not stopped looks at its lease in time. *)

Tick ==
    /\ now < MaxTime
    /\ \A w \in Workers : ~wk[w].frozen /\ Holds(w) => now < GivenUpAt(wk[w].h)
    /\ now' = now + 1
    /\ UNCHANGED <<skew, ask, ex, inbox, reports, read, pend, wk, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

Freeze(w) ==
    /\ ~wk[w].frozen /\ freezes < MaxFreezes /\ Holds(w)
    /\ wk' = [wk EXCEPT ![w].frozen = TRUE]
    /\ freezes' = freezes + 1
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, pend, runs, rem, lostD, terms, begun,
                   restarts, cancels>>

Thaw(w) ==
    /\ wk[w].frozen
    /\ wk' = [wk EXCEPT ![w].frozen = FALSE]
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, pend, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

(* Another owner: what is committed, and a clock of its own. *)
Restart ==
    /\ restarts < MaxRestarts
    /\ restarts' = restarts + 1
    /\ skew' \in 0..SKEW
    /\ ask' = NoAsk
    /\ UNCHANGED <<now, ex, inbox, reports, read, pend, wk, runs, rem, lostD, terms, begun,
                   freezes, cancels>>

-----------------------------------------------------------------------------
(* The scheduler *)

Lease(w) ==
    /\ ex.st = "queued" /\ ex.d < MaxDeliveries
    /\ LET after == [ex EXCEPT !.st = "leased", !.w = w, !.d = @ + 1, !.until = Clock + TTL,
                               !.fence = @ + 1]
       IN /\ ex' = after
          /\ inbox' = inbox \cup {[k |-> "work", w |-> w, x |-> after.x, d |-> after.d,
                                   until |-> after.until, fence |-> after.fence]}
    /\ UNCHANGED <<now, skew, ask, reports, read, pend, wk, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

Decided(x) == terms' = [terms EXCEPT ![x] = @ + 1]

(* The decision is terminal; a lease is told to stop, and is closed later. *)
Cancel ==
    /\ ex.st \in {"queued", "leased"} /\ cancels < MaxCancels
    /\ cancels' = cancels + 1
    /\ Decided(ex.x)
    /\ IF ex.st = "leased"
       THEN /\ ex' = [ex EXCEPT !.st = IF HELD_UNTIL_CLOSED THEN "closing" ELSE "done"]
            /\ inbox' = inbox \cup {[k |-> "cancel", w |-> ex.w, x |-> ex.x, d |-> ex.d,
                                     until |-> 0, fence |-> 0]}
       ELSE ex' = [ex EXCEPT !.st = "done"] /\ UNCHANGED inbox
    /\ UNCHANGED <<now, skew, ask, reports, read, pend, wk, runs, rem, lostD, begun, freezes,
                   restarts>>

NextRun ==
    /\ ex.st = "done" /\ ex.x < MaxRuns
    /\ ex' = [ex EXCEPT !.x = @ + 1, !.st = "queued", !.w = "", !.d = 0, !.until = 0, !.lost = 0]
    /\ UNCHANGED <<now, skew, ask, inbox, reports, read, pend, wk, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

Follow ==
    /\ read < Len(reports)
    /\ read' = read + 1
    /\ LET r == reports[read + 1]
           mine == ex.x = r.x /\ (ex.d = r.d \/ (~NEWEST_ONLY /\ r.k = "outcome"))
           holder == mine /\ ex.st \in {"leased", "closing"} /\ (ex.w = r.w \/ ~NEWEST_ONLY)
           late == mine /\ ex.st = "queued" /\ r.k = "outcome"
       IN CASE holder /\ ex.st = "leased" /\ r.k = "heartbeat" ->
                /\ ex' = [ex EXCEPT !.until = Larger(@, Clock + TTL)]
                /\ UNCHANGED terms
            [] holder /\ ex.st = "leased" /\ r.k = "returned" ->
                /\ ex' = [ex EXCEPT !.st = "queued", !.w = ""]
                /\ UNCHANGED terms
            [] (holder /\ ex.st = "leased" /\ r.k \in {"outcome", "stopped"}) \/ late ->
                ex' = [ex EXCEPT !.st = "done"] /\ Decided(ex.x)
            [] holder /\ ex.st = "closing" /\ r.k # "heartbeat" ->
                ex' = [ex EXCEPT !.st = "done"] /\ UNCHANGED terms
            [] OTHER -> UNCHANGED <<ex, terms>>
    /\ UNCHANGED <<now, skew, ask, inbox, reports, pend, wk, runs, rem, lostD, begun, freezes,
                   restarts, cancels>>

AskEnd ==
    /\ ex.st \in {"leased", "closing"} /\ Clock >= ex.until
    /\ ~(ask.set /\ ask.at >= ex.until)
    /\ ask' = [at |-> Clock, end |-> Len(reports), set |-> TRUE]
    /\ UNCHANGED <<now, skew, ex, inbox, reports, read, pend, wk, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

Expire ==
    /\ ex.st \in {"leased", "closing"} /\ Clock >= ex.until
    /\ DRAIN_FIRST => ask.set /\ ask.at >= ex.until /\ read >= ask.end
    /\ lostD' = lostD \cup {<<ex.x, ex.d>>}
    /\ CASE ex.st = "closing" -> ex' = [ex EXCEPT !.st = "done"] /\ UNCHANGED terms
         [] ex.st = "leased" /\ ex.lost + 1 >= MaxDeliveries ->
                ex' = [ex EXCEPT !.st = "done", !.lost = @ + 1] /\ Decided(ex.x)
         [] OTHER -> ex' = [ex EXCEPT !.st = "queued", !.w = "", !.lost = @ + 1] /\ UNCHANGED terms
    /\ ask' = NoAsk
    /\ UNCHANGED <<now, skew, inbox, reports, read, pend, wk, runs, rem, begun, freezes, restarts,
                   cancels>>

-----------------------------------------------------------------------------
(* Workers *)

Say(r) == pend' = pend \cup {r}

Take(w) ==
    /\ ~wk[w].frozen
    /\ \E item \in inbox :
        /\ item.k = "work" /\ item.w = w
        /\ <<item.x, item.d>> \notin rem[w]
        /\ rem' = IF REMEMBERS THEN [rem EXCEPT ![w] = @ \cup {<<item.x, item.d>>}] ELSE rem
        /\ IF Holds(w) \/ now + TO_START > item.until
           THEN Say(Report("returned", w, item.x, item.d)) /\ UNCHANGED wk
           ELSE /\ wk' = [wk EXCEPT ![w].h = [x |-> item.x, d |-> item.d, fence |-> item.fence,
                                              ends |-> item.until]]
                /\ UNCHANGED pend
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, runs, lostD, terms, begun, freezes,
                   restarts, cancels>>

TakeCancel(w) ==
    /\ ~wk[w].frozen
    /\ \E item \in inbox :
        /\ item.k = "cancel" /\ item.w = w
        /\ LET h == wk[w].h
               mine == h.x = item.x /\ h.d = item.d
           IN /\ mine \/ <<item.x, item.d>> \notin rem[w]
              /\ rem' = [rem EXCEPT ![w] = @ \cup {<<item.x, item.d>>}]
              /\ Say(Report("stopped", w, item.x, item.d))
              /\ wk' = IF mine THEN [wk EXCEPT ![w].h = NoLease, ![w].beat = NoBeat] ELSE wk
              /\ runs' = IF mine THEN runs \ {RunOf(w, h)} ELSE runs
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, lostD, terms, begun, freezes,
                   restarts, cancels>>

Begin(w) ==
    /\ ~wk[w].frozen /\ Holds(w)
    /\ LET h == wk[w].h
       IN /\ RunOf(w, h) \notin runs
          /\ now + TO_START <= h.ends /\ now < GivenUpAt(h)
          /\ runs' = runs \cup {RunOf(w, h)}
          /\ begun' = IF h.fence > begun THEN h.fence ELSE begun
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, pend, wk, rem, lostD, terms, freezes,
                   restarts, cancels>>

Finish(w) ==
    /\ ~wk[w].frozen /\ Holds(w)
    /\ LET h == wk[w].h
       IN /\ RunOf(w, h) \in runs
          /\ runs' = runs \ {RunOf(w, h)}
          /\ Say(Report("outcome", w, h.x, h.d))
          /\ wk' = [wk EXCEPT ![w].h = NoLease, ![w].beat = NoBeat]
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, rem, lostD, terms, begun, freezes,
                   restarts, cancels>>

(* Its time is over: it is nobody's any more, and its run is told to stop. *)
Sweep(w) ==
    /\ ~wk[w].frozen /\ Holds(w)
    /\ LET h == wk[w].h
       IN /\ now >= GivenUpAt(h)
          /\ wk' = [wk EXCEPT ![w].h = NoLease, ![w].beat = NoBeat]
          /\ IF RunOf(w, h) \in runs /\ STOP_BEFORE_RETURN THEN UNCHANGED pend
             ELSE Say(Report("returned", w, h.x, h.d))
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

(* A run without a lease ends. *)
Ended(w) ==
    /\ ~wk[w].frozen
    /\ \E run \in runs :
        /\ run.w = w /\ ~(wk[w].h.x = run.x /\ wk[w].h.d = run.d)
        /\ runs' = runs \ {run}
        /\ IF STOP_BEFORE_RETURN THEN Say(Report("returned", w, run.x, run.d))
           ELSE UNCHANGED pend
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, wk, rem, lostD, terms, begun, freezes,
                   restarts, cancels>>

(* A heartbeat is made, comes into the log, and is acknowledged: three moments. *)
Beat(w) ==
    /\ ~wk[w].frozen /\ Believes(w) /\ wk[w].beat.stage = "none"
    /\ Len(reports) < MaxReports
    /\ now + TTL > wk[w].h.ends
    /\ wk' = [wk EXCEPT ![w].beat = [said |-> now, x |-> wk[w].h.x, d |-> wk[w].h.d,
                                     stage |-> "made"]]
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, pend, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

BeatArrives(w) ==
    /\ wk[w].beat.stage = "made" /\ Len(reports) < MaxReports
    /\ reports' = Append(reports, Report("heartbeat", w, wk[w].beat.x, wk[w].beat.d))
    /\ wk' = [wk EXCEPT ![w].beat.stage = "logged"]
    /\ UNCHANGED <<now, skew, ask, ex, inbox, read, pend, runs, rem, lostD, terms, begun, freezes,
                   restarts, cancels>>

BeatHeard(w) ==
    /\ ~wk[w].frozen /\ wk[w].beat.stage = "logged"
    /\ LET from == IF COUNT_FROM_SAID THEN wk[w].beat.said ELSE now
           counts == Holds(w) /\ (HEARD_IN_TIME => now < GivenUpAt(wk[w].h))
       IN wk' = [wk EXCEPT ![w].beat = NoBeat,
                           ![w].h.ends = IF counts THEN Larger(@, from + TTL) ELSE @]
    /\ UNCHANGED <<now, skew, ask, ex, inbox, reports, read, pend, runs, rem, lostD, terms, begun,
                   freezes, restarts, cancels>>

(* What else there is to say may come late, and in any order. *)
Arrives ==
    /\ Len(reports) < MaxReports
    /\ \E r \in pend :
        /\ pend' = pend \ {r}
        /\ reports' = Append(reports, r)
    /\ UNCHANGED <<now, skew, ask, ex, inbox, read, wk, runs, rem, lostD, terms, begun, freezes,
                   restarts, cancels>>

Next ==
    \/ Tick \/ Restart \/ Cancel \/ NextRun \/ Follow \/ AskEnd \/ Expire \/ Arrives
    \/ \E w \in Workers :
        \/ Freeze(w) \/ Thaw(w) \/ Lease(w) \/ Take(w) \/ TakeCancel(w) \/ Begin(w) \/ Finish(w)
        \/ Sweep(w) \/ Ended(w) \/ Beat(w) \/ BeatArrives(w) \/ BeatHeard(w)

Spec == Init /\ [][Next]_vars

Same == Permutations(Workers)

-----------------------------------------------------------------------------
(* Two attempts of the job overlap only after the lease of the earlier one expired. *)
I4_NoOverlap ==
    \A a, b \in runs :
        (a.x < b.x \/ (a.x = b.x /\ a.d < b.d)) => <<a.x, a.d>> \in lostD

I5_DeliveriesAreBounded == ex.d <= MaxDeliveries /\ ex.lost <= MaxDeliveries

(* Who believes in its lease is the one it was given to, and nobody else was since. The lease of
   a cancelled execution is not renewed, which its worker may not know: there it ends as said. *)
I7_BelieverIsHolder ==
    \A w \in Workers : Believes(w) /\ terms[wk[w].h.x] = 0 =>
        ex.x = wk[w].h.x /\ ex.d = wk[w].h.d /\ ex.st = "leased" /\ ex.w = w

(* No two workers run one delivery, and none runs it twice at once. *)
I7_OneRunADelivery == \A a, b \in runs : a.x = b.x /\ a.d = b.d => a = b

(* A terminal state is decided once. *)
I8_TerminalOnce == \A x \in 1..MaxRuns : terms[x] <= 1
=============================================================================
