@0xa73276f46abab489;
# Starling's control protocol, part 3 of 3: the envelope, and what workers, guards and coordinators say
# to each other. One envelope is one ZeroMQ frame, sealed as core/wire/seal.h says. See plan.capnp for
# the rules of change.
#
# Nothing here is reliable: a message may be lost or come late (never twice in one connection), and
# whoever needs an answer asks again. Who speaks is the CURVE key of the connection, never a field.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("starling::schema");

using Plan = import "plan.capnp";
using Raft = import "raft.capnp";

# A receiver drops an envelope of another job, and one for another life than its own.
struct Envelope {
  job @0 :Data;                # 16 bytes
  from @1 :Plan.Incarnation;
  to @2 :Plan.Incarnation;     # nonce 0 = the sender does not know the receiver yet

  body :union {
    unset @3 :Void;

    # -- worker or guard -> coordinators
    join @4 :Plan.Join;
    report @5 :Report;
    heartbeat @6 :Heartbeat;
    progress @7 :Progress;
    leave @8 :Leave;
    death @9 :Death;
    finished @10 :Finished;

    # -- coordinator -> worker
    welcome @11 :Welcome;
    refused @12 :Refused;
    freeze @13 :Freeze;
    committed @14 :Plan.Plan;  # a committed plan, the only kind that a worker obeys (R16)
    fenced @15 :Void;          # you were left out of a plan: start a new life
    released @16 :Void;        # your announced leave is complete: exit
    ended @17 :Ended;
    leaderHint @18 :LeaderHint;

    # -- coordinator -> coordinator
    raft @19 :Raft.RaftMessage;

    # -- worker -> coordinators
    notice @20 :Notice;
    shardWritten @21 :ShardWritten;
    unloadable @22 :Unloadable;

    # -- coordinator -> worker
    noted @23 :Noted;
    checkpointAsked @24 :CheckpointAsked;
    fencedFor @25 :FencedFor;  # as `fenced`, with the reason
    seats @26 :List(Seat);

    # -- coordinator, or a person with its key -> coordinators
    changeAsked @27 :ChangeAsked;

    # -- coordinator -> coordinator that asked
    changeAnswered @28 :ChangeAnswered;

    # -- person with an admin's key -> coordinators
    adminAsked @29 :AdminAsked;

    # -- leader -> that person
    adminAnswered @30 :AdminAnswered;

    # -- who has a key that is not known -> coordinator: all that this one may say
    enrol @31 :Enrol;

    # -- coordinator -> who enrols
    enrolled @32 :Enrolled;
  }
}

# Worker -> leader, when it has stopped. A promise (R9): I send and receive nothing more in the epoch
# that I ran, and I enter no plan with an id below `promise`. Repeated until a plan, Fenced or Released.
struct Report {
  promise @0 :Plan.EpochId;
  entered @1 :Plan.EpochId;  # last epoch entered
  version @2 :UInt64;        # 2^64-1 = no state
  pending @3 :Bool;          # has voted for step `version` and still has its totals
  parametersComplete @4 :Bool;
  share @5 :List(UInt32);    # micro-batches of step `version`, as dealt
  done @6 :List(UInt32);     # of these, in its accumulators
  copies @7 :List(Bool);     # per segment: has state with label `version`
  broken @8 :List(Plan.Incarnation);
  microBatchNs @9 :UInt64;   # what a micro-batch takes here, ns; 0 = not known
  mayHaveBegun @10 :Plan.EpochId;  # the prepared epoch that its last vote was ready for
  unreached @11 :Bool;       # the connections with `broken` never stood
  silent @12 :Bool;          # they stood, and nothing came over them for too long
}

# Worker -> leader, every tenth of a lease.
struct Heartbeat {
  entered @0 :Plan.EpochId;
  version @1 :UInt64;
  readyFor @2 :Plan.EpochId;  # prepared plan whose connections stand here
  microBatchNs @3 :UInt64;    # what a micro-batch takes here, ns; 0 = not known
  shareLeft @4 :UInt32;       # micro-batches of the step in flight that others wait for here
  loadLeft @5 :UInt32;        # segments that are still to be loaded from a checkpoint here
  data @6 :Plan.Digest;       # of all data files as they are read here; zeros = not known yet
  ordersLeft @7 :UInt32;      # work on state and with the others that is still to be done here
  progress @8 :UInt64;        # grows with everything that this worker's threads have done
  direct @9 :Bool;            # from rank 0: bytes of the epoch go from device to device
  pathWhy @10 :Text;          # and why, or why not; empty = no word yet
  missed @11 :List(UInt32);   # ranks of `entered` whose sums, parameters, rows or votes it waits for
  differences @12 :List(Difference);  # known here, the newest
  dataWaitPercent @13 :UInt8;  # of the time of its compute threads; 0 = less than half
}

# "A micro-batch of a step was computed again, and has another contribution than the ledger's row."
struct Difference {
  version @0 :UInt64;
  microBatch @1 :UInt32;
  worker @2 :UInt64;  # counter of the incarnation whose row it is
  row @3 :UInt64;     # LedgerRow.contribution
  first @4 :UInt64;   # what was computed again
  second @5 :UInt64;  # and once more
  by @6 :UInt64;      # counter of the incarnation that computed it again
}

# Member -> coordinators, for each version that it passes or learns, and again until one has noted it.
# "I saw this record committed."
struct Progress {
  epoch @0 :Plan.EpochId;
  record @1 :Plan.StepRecord;
  world @2 :UInt32;
  ledger @3 :List(Plan.LedgerRow);  # all M rows or none
  stepMs @4 :Float64;
  pause @5 :Pause;  # with the first pass of a forced epoch only
  direct @6 :Bool;  # its bytes went on the device transport
  peakRate @7 :Float64;  # of this step, where it was changed; 0 = the job's
}

# Where the time from stopping to that pass went at this member; each part begins where the one before
# ends. Milliseconds, finite, not negative.
struct Pause {
  reportMs @0 :Float64;   # stopped; to the report sent
  planMs @1 :Float64;     # to the plan received
  connectMs @2 :Float64;  # to all connections standing
  computeMs @3 :Float64;  # to the own share done
  reduceMs @4 :Float64;   # to all totals accepted
  voteMs @5 :Float64;     # to the vote passed
}

# Worker -> leader: I shall be gone in `noticeMs`; until then I answer everything.
struct Leave {
  noticeMs @0 :UInt64;
}

# Worker -> coordinators: what it was told about the end of its machine. For people, said once; a leave
# itself is announced with `leave`.
struct Notice {
  source @0 :Text;     # SIGTERM, aws, gcp, azure, ..
  text @1 :Text;
  noticeMs @2 :UInt64; # until the machine is gone; of a hint 0
  leave @3 :Bool;      # false: a hint, nothing follows from it
}

# Guard -> leader: this life is over, certainly (exit status or a lock that its end released).
struct Death {
  who @0 :Plan.Incarnation;
  phase @1 :WorkPhase;  # what it was at, for people
  reason @2 :Text;      # why it ended itself, if it did, for people
  exitCode @3 :UInt8;   # with which it ended itself; 0: it did not, or has not said
}

enum WorkPhase {
  none @0;  # not known
  change @1;
  compute @2;
  reduce @3;
  vote @4;
  apply @5;
  gather @6;
  end @7;
}

# Member -> leader at the last version, after its gather. It keeps state and connections until Ended.
struct Finished {
  epoch @0 :Plan.EpochId;
  version @1 :UInt64;
  digestPart @2 :Plan.Digest;      # over the segments that it owns
  parametersPart @3 :Plan.Digest;  # of the working parameters of these segments
  evaluation @4 :List(Float64);    # loss and metrics of that version; empty = not known here
}

# Owner -> leader: my part of the checkpoint of `version` is on disk, or why it is not. Said once; if it
# is lost, so is this checkpoint.
struct ShardWritten {
  version @0 :UInt64;
  record @1 :Plan.StepRecord;  # of step version-1
  file @2 :Text;               # a name in the folder of that version
  bytes @3 :UInt64;
  segments @4 :List(Plan.SegmentDigest);
  error @5 :Text;              # not empty: there is no shard
}

# Member of a fresh plan -> leader: I cannot build the state from the checkpoint of `version`.
struct Unloadable {
  version @0 :UInt64;
  reason @1 :Text;
}

# Leader -> worker, when its join is committed.
struct Welcome {
  who @0 :Plan.Incarnation;  # with the counter of this life
  jobText @1 :Text;          # empty if the worker's job hash matches
}

# Leader -> worker: this join cannot be taken, and why, in one line. The worker exits 2.
struct Refused {
  reason @0 :Text;
}

struct FencedFor {
  reason @0 :Text;  # for people
}

# Leader -> worker: stop your epoch, then report with this promise (R8, R9).
struct Freeze {
  asked @0 :Plan.EpochId;
}

# Leader -> worker, once committed: the job is over, or cannot go on. Save, close, exit with this code.
struct Ended {
  exitCode @0 :UInt8;
  reason @1 :Text;
  digest @2 :Plan.Digest;
  loss @3 :Float64;
  parameters @4 :Plan.Digest;  # of the working parameters: who has others does not save them
}

# Leader -> member: all write a checkpoint of the next version above this one for which a vote says so.
struct CheckpointAsked {
  above @0 :UInt64;
}

# Any coordinator -> member: the Progress of that step has come and is passed on to observers.
struct Noted {
  version @0 :UInt64;
}

# Any coordinator -> anyone: who leads, as far as I know. Term 0 = I do not know. Also the answer to an
# envelope that was addressed to an earlier life of this coordinator.
struct LeaderHint {
  coordinator @0 :UInt32;
  term @1 :UInt64;
  note @2 :Text;  # what a person at that worker should know; empty = nothing
}

# Any coordinator -> anyone: where the coordinator with this place in the group is reached now. Places
# that a list of seats does not name stay where they are.
struct Seat {
  place @0 :UInt32;   # below 64
  address @1 :Text;   # "tcp://host:port"
}

# "Change the group of coordinators": with `add`, the sender's own place; places + 1, 0 = none.
struct ChangeAsked {
  add @0 :UInt32;
  address @1 :Text;  # where others reach it
  life @2 :UInt64;   # of its log
  remove @3 :UInt32;
  jobHash @4 :UInt64;  # of its job file
}

enum ChangeState {
  unset @0;
  underWay @1;
  mayBegin @2;  # the place belongs to this life
  done @3;
  refused @4;
}

struct ChangeAnswered {
  state @0 :ChangeState;
  reason @1 :Text;
}

enum AdminAction {
  unset @0;
  drain @1;
  evict @2;
  checkpoint @3;
  stop @4;
  rate @5;
}

struct AdminAsked {
  action @0 :AdminAction;
  worker @1 :Text;  # name, of drain and evict
  mark @2 :UInt64;  # of the last answer; 0 = the first time
  peakRate @3 :Float64;  # of rate
}

enum AdminState {
  unset @0;
  underWay @1;
  done @2;
  refused @3;
}

struct AdminAnswered {
  action @0 :AdminAction;
  state @1 :AdminState;
  mark @2 :UInt64;
  text @3 :Text;
}

# "Let my key in: this token of an OIDC provider says who I am." Answered also to a key that is known.
struct Enrol {
  token @0 :Text;  # JSON Web Token in its compact form
}

# One of name and refusal is empty.
struct Enrolled {
  name @0 :Text;     # of the key, which is let in from now on
  refusal @1 :Text;  # why not, for people
  again @2 :Bool;    # it says nothing of the token, which may be shown again
}
