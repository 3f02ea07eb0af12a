-------------------------------- MODULE Slots --------------------------------
(***************************************************************************)
(* The places of one worker, whom the slots processor grants to partitions *)
(* and which they fill with leases: processors/core/slots.py,              *)
(* processors/slots.py and processors/core/places.py.                      *)
(*                                                                         *)
(* Every message may be lost, late, repeated and overtaken: what was sent  *)
(* once may be read at any time, or never. What the slots processor keeps  *)
(* of grants is committed before they are sent; what partitions told it is *)
(* forgotten with its owner. The worker offers more or less as it likes.   *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Partitions,
    Places,        \* what the worker offers at most
    MaxGrants,     \* of each epoch
    MaxSays,       \* messages of each partition and epoch
    MaxEpochs,     \* take-overs of each partition, the first included
    MaxOwners,     \* take-overs of the slots processor
    MaxSilences    \* partitions that are not heard for so long that they count as silent

CONSTANTS
    LOWERED_COUNTS,    \* what is taken back counts as held until the partition answers
    OLD_GRANTS_IGNORED,    \* by their number
    OLD_SAYINGS_IGNORED,
    OTHER_EPOCHS_IGNORED,  \* grants for a former owner of the partition
    SILENT_HELD_COUNTS,    \* of a silent partition what it holds counts
    LEASES_COUNTED,        \* after a take-over leases are counted from the state
    GRANTS_KEPT,           \* before a grant is sent it stands in the log
    WAITS_FOR_ANSWER       \* after a take-over nothing is leased before a grant

VARIABLES
    offered,   \* what the slots processor knows of the worker
    dem,       \* what it knows of each partition
    kept,      \* what of that stands in the log
    says,      \* everything that partitions ever said
    grants,    \* every grant that was ever sent
    part,      \* each partition's memory
    leases,    \* each partition's open leases, as committed
    owners, silences

vars == <<offered, dem, kept, says, grants, part, leases, owners, silences>>

Unknown == [epoch |-> 0, n |-> 0, held |-> 0, granted |-> 0, grant |-> 0, answered |-> 0,
            again |-> FALSE, speaks |-> FALSE]
Fresh(e) == [epoch |-> e, n |-> 0, grant |-> 0, granted |-> 0, counted |-> 0]

Init ==
    /\ offered = Places
    /\ dem = [p \in Partitions |-> Unknown]
    /\ kept = dem
    /\ says = {}
    /\ grants = {}
    /\ part = [p \in Partitions |-> Fresh(1)]
    /\ leases = [p \in Partitions |-> 0]
    /\ owners = 0
    /\ silences = 0

Larger(a, b) == IF a > b THEN a ELSE b

RECURSIVE Sum(_, _)
Sum(f, S) == IF S = {} THEN 0 ELSE LET p == CHOOSE p \in S : TRUE IN f[p] + Sum(f, S \ {p})

-----------------------------------------------------------------------------
(* The slots processor *)

IsLowering(d) == d.answered < d.grant /\ d.held > d.granted

(* What nobody else may have. *)
Counted(d) ==
    IF d.speaks THEN Larger(d.granted, d.held)
    ELSE IF SILENT_HELD_COUNTS THEN d.held ELSE 0

Used(others) == Sum([p \in Partitions |-> Counted(dem[p])], others)

Offer ==
    /\ \E n \in 0..Places : n # offered /\ offered' = n
    /\ UNCHANGED <<dem, kept, says, grants, part, leases, owners, silences>>

(* A message of a partition is read: _wanted in core/slots.py. *)
Hear(m) ==
    LET d == dem[m.p]
        new == m.epoch > d.epoch \/ (m.epoch = d.epoch /\ m.answers > d.grant)
        held == IF LOWERED_COUNTS /\ IsLowering(d) /\ m.answers < d.grant
                THEN Larger(d.held, m.held) ELSE m.held
    IN /\ IF OLD_SAYINGS_IGNORED THEN new \/ (m.epoch = d.epoch /\ m.n > d.n) ELSE TRUE
       /\ dem' = [dem EXCEPT ![m.p] =
            IF new
            THEN [epoch |-> m.epoch, n |-> m.n, held |-> m.held, granted |-> m.held,
                  grant |-> m.answers, answered |-> -1, again |-> TRUE, speaks |-> TRUE]
            ELSE [@ EXCEPT !.n = m.n, !.held = held, !.speaks = TRUE,
                           !.answered = IF d.answered = -1 THEN -1
                                        ELSE Larger(@, m.answers)]]
       /\ UNCHANGED <<offered, kept, says, grants, part, leases, owners, silences>>

(* A partition is granted another number of places. While it may still act on a higher grant it
   is left alone. *)
Grant(p) ==
    LET d == dem[p]
    IN /\ d.epoch > 0 /\ d.speaks /\ ~IsLowering(d) /\ d.grant < MaxGrants
       /\ \E count \in 0..Places :
            /\ count # d.granted \/ d.answered = -1
            /\ \/ count < d.granted
               \/ Larger(count, d.held) + Used(Partitions \ {p}) <= offered
               \* What it holds beyond its grant nobody else could have.
               \/ count <= d.held
                  /\ count + Sum([q \in Partitions |-> dem[q].granted], Partitions \ {p}) <= offered
               \/ d.answered = -1 /\ count = d.granted
            /\ LET after == [d EXCEPT
                    !.granted = count,
                    !.held = IF count < d.granted /\ LOWERED_COUNTS
                             THEN Larger(d.held, d.granted) ELSE d.held,
                    !.grant = d.grant + 1,
                    !.answered = IF d.answered = -1 THEN d.grant ELSE d.answered]
               IN /\ dem' = [dem EXCEPT ![p] = after]
                  /\ kept' = IF GRANTS_KEPT THEN dem' ELSE kept
                  /\ grants' = grants \cup
                        {[p |-> p, epoch |-> d.epoch, n |-> after.grant, count |-> count]}
       /\ UNCHANGED <<offered, says, part, leases, owners, silences>>

(* It is not heard for 30 s: it has lost the log, and another owner of it will speak. Assumed is
   that it was heard after it leased last (what it leased unheard is the soft part of places), and
   that what it said before is read by then, since it stands in a log. *)
FallsSilent(p) ==
    /\ dem[p].epoch > 0 /\ dem[p].speaks /\ silences < MaxSilences
    /\ part[p].epoch < MaxEpochs /\ leases[p] <= dem[p].held
    /\ silences' = silences + 1
    /\ dem' = [dem EXCEPT ![p] = [@ EXCEPT !.speaks = FALSE, !.granted = 0]]
    /\ kept' = dem'
    /\ part' = [part EXCEPT ![p] = [Fresh(@.epoch + 1) EXCEPT !.counted = leases[p]]]
    /\ says' = {m \in says : m.p # p}
    /\ UNCHANGED <<offered, grants, leases, owners>>

(* Another owner of the limit has what stands in the log; everybody is asked to answer again. *)
OwnerChanges ==
    /\ owners < MaxOwners
    /\ owners' = owners + 1
    /\ dem' = [p \in Partitions |-> [kept[p] EXCEPT !.speaks = kept[p].epoch > 0]]
    /\ UNCHANGED <<offered, kept, says, grants, part, leases, silences>>

-----------------------------------------------------------------------------
(* Partitions *)

Follow(g) ==
    LET p == g.p
    IN /\ OTHER_EPOCHS_IGNORED => g.epoch = part[p].epoch
       /\ IF OLD_GRANTS_IGNORED THEN g.n > part[p].grant
          ELSE g.n # part[p].grant
       /\ part' = [part EXCEPT ![p] = [@ EXCEPT
            !.grant = g.n,
            !.granted = g.count]]
       /\ UNCHANGED <<offered, dem, kept, says, grants, leases, owners, silences>>

(* A lease is taken where a place is free. *)
Take(p) ==
    /\ LET free == IF WAITS_FOR_ANSWER \/ part[p].grant > 0 THEN part[p].granted ELSE 1
       IN part[p].counted < free
    /\ leases' = [leases EXCEPT ![p] = @ + 1]
    /\ part' = [part EXCEPT ![p].counted = @ + 1]
    /\ UNCHANGED <<offered, dem, kept, says, grants, owners, silences>>

Close(p) ==
    /\ leases[p] > 0 /\ part[p].counted > 0
    /\ leases' = [leases EXCEPT ![p] = @ - 1]
    /\ part' = [part EXCEPT ![p].counted = @ - 1]
    /\ UNCHANGED <<offered, dem, kept, says, grants, owners, silences>>

Speak(p) ==
    /\ part[p].n < MaxSays
    /\ part' = [part EXCEPT ![p].n = @ + 1]
    /\ says' = says \cup {[p |-> p, epoch |-> part[p].epoch, n |-> part[p].n + 1,
                           held |-> part[p].counted, answers |-> part[p].grant]}
    /\ UNCHANGED <<offered, dem, kept, grants, leases, owners, silences>>

TakenOver(p) ==
    /\ part[p].epoch < MaxEpochs
    /\ part' = [part EXCEPT ![p] = [Fresh(@.epoch + 1) EXCEPT
                                    !.counted = IF LEASES_COUNTED THEN leases[p] ELSE 0]]
    /\ UNCHANGED <<offered, dem, kept, says, grants, leases, owners, silences>>

Next ==
    \/ Offer \/ OwnerChanges
    \/ \E m \in says : Hear(m)
    \/ \E g \in grants : Follow(g)
    \/ \E p \in Partitions :
        Grant(p) \/ FallsSilent(p) \/ Take(p) \/ Close(p) \/ Speak(p) \/ TakenOver(p)

Spec == Init /\ [][Next]_vars

Same == Permutations(Partitions)

-----------------------------------------------------------------------------
(* A worker never has more leases than the most it ever offered. *)
I17_NoMoreLeasesThanPlaces == Sum(leases, Partitions) <= Places

(* What counts for a partition is never less than what it holds. *)
I14_CountedIsEnough == \A p \in Partitions : dem[p].epoch > 0 => Counted(dem[p]) >= leases[p]
=============================================================================
