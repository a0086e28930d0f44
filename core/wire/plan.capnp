@0x81ab43e2f9f870c4;
# Starling's control protocol, part 1 of 3: the words that messages and the Raft log share.
#
# Rules for changes: add fields and union members with the next number, at the end; never renumber,
# retype or change a default. tests/core/golden/ holds bytes of older builds that must stay readable.
# In every enum and union number 0 is `unset` and refused, so that a damaged message which reads as
# all defaults is no message. Limits: core/wire/limits.h. Words: docs/design.md, section 1.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("starling::schema");

# An epoch's name: the leader's term, and a counter in that term. {0, 0} = none.
struct EpochId {
  term @0 :UInt64;
  counter @1 :UInt64;
}

# One life of a process. The counter comes from the leader (0 before that), the nonce from the
# process; equality is by nonce.
struct Incarnation {
  counter @0 :UInt64;
  nonce @1 :UInt64;
}

# A 128-bit sum, so that it does not depend on who holds what.
struct Digest {
  low @0 :UInt64;
  high @1 :UInt64;
}

# What everybody who passes the vote of step `version` knows.
struct StepRecord {
  version @0 :UInt64;  # 2^64-1 = no record
  loss @1 :Float64;    # mean over the micro-batches, nats
  norm @2 :Float64;    # global gradient norm before clipping
  tokens @3 :UInt64;
  skipped @4 :Bool;
  ledgerHash @5 :UInt64;
  digest @6 :Digest;   # of version `version`; zeros = none was due
  metrics @7 :List(Float64);  # means of what the model measures beside the loss
  scale @8 :UInt8;            # log2 of what the loss was multiplied by
  scaleSteps @9 :UInt32;      # steps in a row with that scale, this one counted; 0 = not scaled
  evaluation @10 :List(Float64);  # loss and metrics over held-out data at `version`; empty = not due
}

# One row of a step's ledger: who computed a micro-batch, and what came out.
struct LedgerRow {
  microBatch @0 :UInt32;
  worker @1 :UInt64;  # counter of its incarnation
  loss @2 :Float64;
  tokens @3 :UInt64;
  finite @4 :Bool;
  metrics @5 :List(Float64);  # what the model measured beside the loss
  contribution @6 :UInt64;    # hash of what was added, of loss and tokens
}

# Worker -> coordinators, and again in the log as `joined`. "I want to be a member; I run this job, my
# arithmetic has this fingerprint, others reach my bulk listener there." Promises nothing. Repeated
# until Welcome or Refused.
struct Join {
  who @0 :Incarnation;
  name @1 :Text;  # for people; who speaks is decided by the CURVE key alone
  host @2 :Text;
  port @3 :UInt16;
  failureDomain @4 :Text;
  jobHash @5 :UInt64;
  fingerprint @6 :Digest;
  fingerprintText @7 :Text;
  pid @8 :UInt64;  # of its process on its host, for people; 0 = not told
  data @9 :Digest;  # of all its data, where they were read whole before it joined; zeros = not yet
  role @10 :WorkerRole = both;
  machine @11 :Machine;
}

# What a worker says of its machine (core/base/machine.h); 0 = not known.
struct Machine {
  processors @0 :UInt32;
  memory @1 :UInt64;      # bytes, as the next
  memoryFree @2 :UInt64;
  openFiles @3 :UInt64;
  diskFree @4 :UInt64;    # bytes
  firstGradientNs @5 :UInt64;
  clockMs @6 :Int64;      # since 1970
  clockAheadMs @7 :Int64;
  device @8 :Text;
}

# What a worker does for the group besides voting.
enum WorkerRole {
  unset @0;
  both @1;
  compute @2;  # micro-batches; holds no state
  hold @3;     # state; computes no micro-batch
}

struct Member {
  who @0 :Incarnation;
  name @1 :Text;
  host @2 :Text;
  port @3 :UInt16;
  failureDomain @4 :Text;
  joiner @5 :Bool;    # has no state when the epoch begins
  draining @6 :Bool;  # announced its leave: keeps nothing longer than it must
  role @7 :WorkerRole = both;
}

# In step (first step of the epoch + stepOffset) `source` sends its state of segments
# [first, first + count) to `target`, which is a holder from that step on (R14).
struct Move {
  first @0 :UInt32;
  count @1 :UInt32;
  source @2 :UInt16;
  target @3 :UInt16;
  stepOffset @4 :UInt32;
}

enum PlanKind {
  unset @0;
  fresh @1;     # every member builds the state from seed or checkpoint
  forced @2;    # after a loss: has a base and a beginning
  prepared @3;  # stops nobody: takes effect at the switch (R15)
}

enum BeginAt {
  unset @0;
  vote @1;     # of step base-1
  gather @2;   # of version base
  compute @3;  # of step base
}

# The members of one epoch, who holds what, and from where the run goes on. Valid only when committed
# and when its predecessor is the last valid plan (R10, R16).
struct Plan {
  id @0 :EpochId;
  predecessor @1 :EpochId;
  kind @2 :PlanKind;
  members @3 :List(Member);  # index = rank
  key @4 :Data;              # 32 bytes: the epoch key of the bulk connections
  # Holders of all segments one after the other, each owner first; segment s has holderCounts[s].
  holderCounts @5 :List(UInt16);
  holders @6 :List(UInt16);
  moves @7 :List(Move);
  base @8 :UInt64;
  begin @9 :BeginAt;
  shares @10 :List(UInt16);  # micro-batch of the epoch's first step -> rank; empty = equal ones
  cause @11 :Text;
  entered @12 :List(EpochId);  # by its members, last; of a fresh or forced plan
  # The first step that is in doubt because of a worker that is gone: it had not read all its data, had
  # others, or computed wrongly. 2^64 - 1: there is none.
  doubtedFrom @13 :UInt64 = 0xffffffffffffffff;
  rates @14 :List(RateChange);  # in the order in which they were made
}

# From this step on the peak rate is another one.
struct RateChange {
  from @0 :UInt64;
  peakRate @1 :Float64;
}

# What a segment's state adds to the digest of a version.
struct SegmentDigest {
  segment @0 :UInt32;
  digest @1 :Digest;
}

# A complete checkpoint: its manifest lies in the folder of its version.
struct Checkpoint {
  version @0 :UInt64;
  digest @1 :Digest;
  fingerprint @2 :Digest;  # of the workers that computed it
  fingerprintText @3 :Text;
  data @4 :Digest;  # of all data; 0, 0: not known
  # The first step that is in doubt: data that were not read to the end, or a tainted worker.
  # 2^64 - 1: there is none.
  doubtedFrom @5 :UInt64 = 0xffffffffffffffff;
  rates @6 :List(RateChange);  # Plan's
}
