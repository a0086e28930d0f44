@0xda1e2314ac9850cf;
# Starling's control protocol, part 2 of 3: what coordinators say to each other, and what they store.
# See plan.capnp for the rules of change.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("starling::schema");

using Plan = import "plan.capnp";

enum RaftKind {
  unset @0;
  # Candidate -> all. "Would you vote for me in `term`?" Changes nothing at either side.
  preVote @1;
  preVoteReply @2;
  # Candidate -> all, after its own vote is on disk. "Vote for me in `term`."
  vote @3;
  # Sent after the vote is on disk: "I vote for nobody else in `term`."
  voteReply @4;
  # Leader -> follower: entries after (lastIndex, lastTerm), and how far the log is committed. Without
  # entries it is the leader's heartbeat.
  append @5;
  # Sent after the entries are on disk: "my log equals yours up to `match`", or granted = false and
  # `match` as a hint where to look for the last equal entry.
  appendReply @6;
  # Leader -> follower that lacks entries which the leader's log no longer has: a piece of the state
  # after entry (lastIndex, lastTerm). `match` = offset of the piece, `commit` = bytes of all pieces,
  # the piece is the data of the one entry.
  snapshot @7;
  # "I hold the first `match` bytes of the state after entry `lastIndex`."
  snapshotReply @8;
  # From a member that came back without its log, to all: "what may I have promised?" Repeated until
  # all have answered.
  recall @9;
  # "My term, and my last entry. Not granted: I have lost my log too."
  recallReply @10;
  # Leader -> voter that has its whole log: "stand for election now", as the leader wants to leave.
  elect @11;
  # To one that asks for a vote and is no member any more: "the group went on without you."
  removed @12;
}

# The group of coordinators from an entry on, by places. Place + 1 where 0 means none.
struct RaftMembers {
  voters @0 :List(UInt32);  # ascending
  learner @1 :UInt32;       # place + 1
  leaving @2 :UInt32;       # place + 1, of a voter
  next @3 :UInt32;          # the lowest place that was never in the group
}

struct RaftEntry {
  index @0 :UInt64;
  term @1 :UInt64;
  data @2 :Data;  # a sealed Entry (core/wire/seal.h); empty = the no-op that begins a term
  members @3 :RaftMembers;  # without voters = the entry does not change the group
}

# Coordinator -> coordinator.
struct RaftMessage {
  kind @0 :RaftKind;
  from @1 :UInt32;  # place in the group
  to @2 :UInt32;
  term @3 :UInt64;
  lastIndex @4 :UInt64;
  lastTerm @5 :UInt64;
  commit @6 :UInt64;
  granted @7 :Bool;
  match @8 :UInt64;
  round @9 :UInt64;  # a reply names the round that it answers
  entries @10 :List(RaftEntry);
}

# What Raft orders. Each is applied by every coordinator in log order; a plan that does not follow the
# last valid one is void (R10).
struct Entry {
  union {
    unset @0 :Void;
    jobStarted @1 :JobStarted;
    joined @2 :Plan.Join;  # who.counter set by the leader
    leaveAnnounced @3 :LeaveAnnounced;
    lost @4 :Lost;
    plan @5 :Plan.Plan;
    jobEnded @6 :JobEnded;
    published @7 :Published;
    damaged @8 :Damaged;
    restarted @9 :Restarted;
    coordinatorAt @10 :CoordinatorAt;
  }
}

# What the entries up to some index say together: a Raft snapshot. Its size follows from the number of
# current members, not from the length of the job.
struct GroupState {
  job @0 :JobStarted;  # unset if hasJob is false
  hasJob @1 :Bool;
  plan @2 :Plan.Plan;  # the last valid one, and the one before it
  hasPlan @3 :Bool;
  before @4 :Plan.Plan;
  hasBefore @5 :Bool;
  end @6 :JobEnded;
  hasEnd @7 :Bool;
  lives @8 :List(Life);
  epochs @9 :List(EpochMembers);
  nextCounter @10 :UInt64;
  plans @11 :UInt64;  # valid ones so far
  lastBase @12 :UInt64;
  lastFresh @13 :Plan.EpochId;
  checkpoints @14 :List(Plan.Checkpoint);
  start @15 :UInt64;
  restart @16 :Restarted;
  hasRestart @17 :Bool;
  seats @18 :List(CoordinatorAt);
  reached @19 :UInt64;  # the highest of all restarts
}

# A place was given to the coordinator whose log has this life; it is reached at this address.
struct CoordinatorAt {
  place @0 :UInt32;
  address @1 :Text;
  life @2 :UInt64;
}

struct Life {
  join @0 :Plan.Join;
  leaving @1 :Bool;
  dead @2 :Bool;
  planned @3 :Bool;
  since @4 :UInt64;  # `plans` when it joined
}

struct EpochMembers {
  id @0 :Plan.EpochId;
  nonces @1 :List(UInt64);
}

struct JobStarted {
  job @0 :Data;  # 16 bytes
  jobHash @1 :UInt64;
  checkpoints @2 :List(Plan.Checkpoint);  # it goes on from the last of them; oldest first
}

struct LeaveAnnounced {
  who @0 :Plan.Incarnation;
}

struct Lost {
  who @0 :Plan.Incarnation;
  certain @1 :Bool;  # a guard's word, an exit status or its own last word, not a timeout
}

struct JobEnded {
  exitCode @0 :UInt8;
  reason @1 :Text;
  digest @2 :Plan.Digest;
  loss @3 :Float64;
  version @4 :UInt64;
  parameters @5 :Plan.Digest;  # of the working parameters of that version
}

# This checkpoint is complete; those of versions below `oldest` are removed, but `spared`.
struct Published {
  checkpoint @0 :Plan.Checkpoint;
  oldest @1 :UInt64;
  spared @2 :UInt64 = 0xffffffffffffffff;
}

# The checkpoint of this version cannot be read.
struct Damaged {
  version @0 :UInt64;
  reason @1 :Text;
}

# The plan `lost` is over, and with it some state: the next plan is fresh, from the checkpoint of
# `version`. Void if `lost` is not the last valid plan.
struct Restarted {
  lost @0 :Plan.EpochId;
  version @1 :UInt64;
  cause @2 :Text;
  reached @3 :UInt64;  # no step from this one on is known but to lives that are over
}
