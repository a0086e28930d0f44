#include "core/base/check.h"
#include "core/wire/convert.h"
#include "core/wire/limits.h"
#include "core/wire/raft_members.h"

namespace starling::wire {
namespace {

schema::RaftKind to_schema(RaftKind kind) {
  switch (kind) {
    case RaftKind::kPreVote:
      return schema::RaftKind::PRE_VOTE;
    case RaftKind::kPreVoteReply:
      return schema::RaftKind::PRE_VOTE_REPLY;
    case RaftKind::kVote:
      return schema::RaftKind::VOTE;
    case RaftKind::kVoteReply:
      return schema::RaftKind::VOTE_REPLY;
    case RaftKind::kAppend:
      return schema::RaftKind::APPEND;
    case RaftKind::kAppendReply:
      return schema::RaftKind::APPEND_REPLY;
    case RaftKind::kSnapshot:
      return schema::RaftKind::SNAPSHOT;
    case RaftKind::kSnapshotReply:
      return schema::RaftKind::SNAPSHOT_REPLY;
    case RaftKind::kRecall:
      return schema::RaftKind::RECALL;
    case RaftKind::kRecallReply:
      return schema::RaftKind::RECALL_REPLY;
    case RaftKind::kElect:
      return schema::RaftKind::ELECT;
    case RaftKind::kRemoved:
      return schema::RaftKind::REMOVED;
  }
  STARLING_CHECK_MSG(false, "raft kind " << static_cast<int>(kind));
  return schema::RaftKind::UNSET;
}

RaftKind from_schema(Reading& r, schema::RaftKind kind) {
  switch (kind) {
    case schema::RaftKind::PRE_VOTE:
      return RaftKind::kPreVote;
    case schema::RaftKind::PRE_VOTE_REPLY:
      return RaftKind::kPreVoteReply;
    case schema::RaftKind::VOTE:
      return RaftKind::kVote;
    case schema::RaftKind::VOTE_REPLY:
      return RaftKind::kVoteReply;
    case schema::RaftKind::APPEND:
      return RaftKind::kAppend;
    case schema::RaftKind::APPEND_REPLY:
      return RaftKind::kAppendReply;
    case schema::RaftKind::SNAPSHOT:
      return RaftKind::kSnapshot;
    case schema::RaftKind::SNAPSHOT_REPLY:
      return RaftKind::kSnapshotReply;
    case schema::RaftKind::RECALL:
      return RaftKind::kRecall;
    case schema::RaftKind::RECALL_REPLY:
      return RaftKind::kRecallReply;
    case schema::RaftKind::ELECT:
      return RaftKind::kElect;
    case schema::RaftKind::REMOVED:
      return RaftKind::kRemoved;
    case schema::RaftKind::UNSET:
      break;
  }
  r.need(false, "raft message is of no known kind");
  return RaftKind::kAppend;
}

void write_body(const JobStarted& in, schema::JobStarted::Builder body) {
  body.setJob(data(in.job));
  body.setJobHash(in.job_hash);
  STARLING_CHECK(in.checkpoints.size() <= limits::kCheckpoints);
  auto checkpoints = body.initCheckpoints(static_cast<unsigned>(in.checkpoints.size()));
  for (unsigned i = 0; i < checkpoints.size(); ++i) write(in.checkpoints[i], checkpoints[i]);
}
void write_body(const JobStarted& in, schema::Entry::Builder out) {
  write_body(in, out.initJobStarted());
}
void write_body(const Joined& in, schema::Entry::Builder out) {
  write(in.join, out.initJoined());
}
void write_body(const LeaveAnnounced& in, schema::Entry::Builder out) {
  write(in.who, out.initLeaveAnnounced().initWho());
}
void write_body(const Lost& in, schema::Entry::Builder out) {
  auto body = out.initLost();
  write(in.who, body.initWho());
  body.setCertain(in.certain);
}
void write_body(const Plan& in, schema::Entry::Builder out) {
  write(in, out.initPlan());
}
void write_body(const JobEnded& in, schema::JobEnded::Builder body) {
  body.setExitCode(in.exit_code);
  const auto reason = cut(in.reason, limits::kLineBytes);
  body.setReason(text(reason, limits::kLineBytes));
  write(in.digest, body.initDigest());
  body.setLoss(in.loss);
  body.setVersion(in.version);
  write(in.parameters, body.initParameters());
}

void write_body(const JobEnded& in, schema::Entry::Builder out) {
  write_body(in, out.initJobEnded());
}
void write_body(const Published& in, schema::Entry::Builder out) {
  auto body = out.initPublished();
  write(in.checkpoint, body.initCheckpoint());
  body.setOldest(in.oldest);
  body.setSpared(in.spared);
}
void write_body(const Damaged& in, schema::Entry::Builder out) {
  auto body = out.initDamaged();
  body.setVersion(in.version);
  const auto reason = cut(in.reason, limits::kLineBytes);
  body.setReason(text(reason, limits::kLineBytes));
}
void write_body(const Restarted& in, schema::Restarted::Builder body) {
  write(in.lost, body.initLost());
  body.setVersion(in.version);
  const auto cause = cut(in.cause, limits::kLineBytes);
  body.setCause(text(cause, limits::kLineBytes));
  body.setReached(in.reached);
}

void write_body(const Restarted& in, schema::Entry::Builder out) {
  write_body(in, out.initRestarted());
}

Lost read_body(schema::Lost::Reader in) {
  return {read(in.getWho()), in.getCertain()};
}

JobStarted read_body(Reading& r, schema::JobStarted::Reader in) {
  JobStarted out;
  read_fixed(r, in.getJob(), out.job, "job id does not have 16 bytes");
  out.job_hash = in.getJobHash();
  const auto checkpoints = in.getCheckpoints();
  const auto n = r.bounded(checkpoints, limits::kCheckpoints, "checkpoints of a job");
  out.checkpoints.reserve(n);
  for (unsigned i = 0; i < n; ++i) out.checkpoints.push_back(read(r, checkpoints[i]));
  return out;
}

Published read_body(Reading& r, schema::Published::Reader in) {
  return {read(r, in.getCheckpoint()), Version(in.getOldest()), Version(in.getSpared())};
}

Damaged read_body(Reading& r, schema::Damaged::Reader in) {
  return {Version(in.getVersion()),
          r.text(in.getReason(), limits::kLineBytes, "reason of a damage")};
}

Restarted read_body(Reading& r, schema::Restarted::Reader in) {
  return {read(in.getLost()), Version(in.getVersion()),
          r.text(in.getCause(), limits::kLineBytes, "restart's cause"), Version(in.getReached())};
}

JobEnded read_body(Reading& r, schema::JobEnded::Reader in) {
  JobEnded out;
  out.exit_code = in.getExitCode();
  out.reason = r.text(in.getReason(), limits::kLineBytes, "end's reason");
  out.digest = read(in.getDigest());
  out.loss = in.getLoss();
  out.version = Version(in.getVersion());
  out.parameters = read(in.getParameters());
  return out;
}

void write_body(const CoordinatorAt& in, schema::Entry::Builder out) {
  write(in, out.initCoordinatorAt());
}

void write_members(const RaftMembers& in, schema::RaftMembers::Builder out) {
  STARLING_CHECK(is_group(in));
  auto voters = out.initVoters(static_cast<unsigned>(in.voters.size()));
  for (unsigned i = 0; i < voters.size(); ++i) voters.set(i, in.voters[i]);
  out.setLearner(in.learner ? *in.learner + 1 : 0);
  out.setLeaving(in.leaving ? *in.leaving + 1 : 0);
  out.setNext(in.next);
}

RaftMembers read_members(Reading& r, schema::RaftMembers::Reader in) {
  RaftMembers out;
  const auto voters = in.getVoters();
  out.voters.resize(r.bounded(voters, limits::kVoters, "raft members"));
  for (unsigned i = 0; i < out.voters.size(); ++i) out.voters[i] = voters[i];
  if (in.getLearner() != 0) out.learner = in.getLearner() - 1;
  if (in.getLeaving() != 0) out.leaving = in.getLeaving() - 1;
  out.next = in.getNext();
  r.need(is_group(out), "raft members are no group");
  return out;
}

}  // namespace

void write(const RaftMessage& in, schema::RaftMessage::Builder out) {
  STARLING_CHECK(in.entries.size() <= limits::kRaftEntries);
  out.setKind(to_schema(in.kind));
  out.setFrom(in.from);
  out.setTo(in.to);
  out.setTerm(in.term);
  out.setLastIndex(in.last_index);
  out.setLastTerm(in.last_term);
  out.setCommit(in.commit);
  out.setGranted(in.granted);
  out.setMatch(in.match);
  out.setRound(in.round);
  std::size_t bytes = 0;
  auto entries = out.initEntries(static_cast<unsigned>(in.entries.size()));
  for (unsigned i = 0; i < entries.size(); ++i) {
    const RaftEntry& entry = in.entries[i];
    STARLING_CHECK(entry.data.size() <= limits::kRaftEntryBytes);
    bytes += entry.data.size();
    entries[i].setIndex(entry.index);
    entries[i].setTerm(entry.term);
    entries[i].setData({entry.data.data(), entry.data.size()});
    if (entry.members) write_members(*entry.members, entries[i].initMembers());
  }
  STARLING_CHECK_MSG(bytes <= limits::kRaftMessageBytes, "bytes=" << bytes);
}

void read(Reading& r, schema::RaftMessage::Reader in, RaftMessage& out) {
  out.kind = from_schema(r, in.getKind());
  out.from = in.getFrom();
  out.to = in.getTo();
  out.term = in.getTerm();
  out.last_index = in.getLastIndex();
  out.last_term = in.getLastTerm();
  out.commit = in.getCommit();
  out.granted = in.getGranted();
  out.match = in.getMatch();
  out.round = in.getRound();
  const auto entries = in.getEntries();
  out.entries.resize(r.bounded(entries, limits::kRaftEntries, "raft message's entries"));
  std::size_t bytes = 0;
  for (unsigned i = 0; i < out.entries.size(); ++i) {
    RaftEntry& entry = out.entries[i];
    entry.index = entries[i].getIndex();
    entry.term = entries[i].getTerm();
    const auto data = entries[i].getData();
    entry.data.assign(data.begin(),
                      data.begin() + r.bounded(data, limits::kRaftEntryBytes, "raft entry"));
    bytes += entry.data.size();
    if (entries[i].hasMembers()) entry.members = read_members(r, entries[i].getMembers());
  }
  r.need(bytes <= limits::kRaftMessageBytes, "raft message's entries have too many bytes");
}

void write(const GroupState& in, schema::GroupState::Builder out) {
  if (in.job) write_body(*in.job, out.initJob());
  out.setHasJob(in.job.has_value());
  if (in.plan) write(*in.plan, out.initPlan());
  out.setHasPlan(in.plan.has_value());
  if (in.before) write(*in.before, out.initBefore());
  out.setHasBefore(in.before.has_value());
  if (in.end) write_body(*in.end, out.initEnd());
  out.setHasEnd(in.end.has_value());
  if (in.restart) write_body(*in.restart, out.initRestart());
  out.setHasRestart(in.restart.has_value());
  STARLING_CHECK(in.lives.size() <= limits::kLives);
  auto lives = out.initLives(static_cast<unsigned>(in.lives.size()));
  for (unsigned i = 0; i < lives.size(); ++i) {
    write(in.lives[i].join, lives[i].initJoin());
    lives[i].setLeaving(in.lives[i].leaving);
    lives[i].setDead(in.lives[i].dead);
    lives[i].setPlanned(in.lives[i].planned);
    lives[i].setSince(in.lives[i].since);
  }
  STARLING_CHECK(in.epochs.size() <= limits::kMembers + 4);
  auto epochs = out.initEpochs(static_cast<unsigned>(in.epochs.size()));
  for (unsigned i = 0; i < epochs.size(); ++i) {
    write(in.epochs[i].id, epochs[i].initId());
    auto nonces = epochs[i].initNonces(static_cast<unsigned>(in.epochs[i].nonces.size()));
    for (unsigned k = 0; k < nonces.size(); ++k) nonces.set(k, in.epochs[i].nonces[k]);
  }
  out.setNextCounter(in.next_counter);
  out.setPlans(in.plans);
  out.setLastBase(in.last_base);
  write(in.last_fresh, out.initLastFresh());
  STARLING_CHECK(in.checkpoints.size() <= limits::kCheckpoints);
  auto checkpoints = out.initCheckpoints(static_cast<unsigned>(in.checkpoints.size()));
  for (unsigned i = 0; i < checkpoints.size(); ++i) write(in.checkpoints[i], checkpoints[i]);
  out.setStart(in.start);
  out.setReached(in.reached);
  STARLING_CHECK(in.seats.size() <= limits::kSeats);
  auto seats = out.initSeats(static_cast<unsigned>(in.seats.size()));
  for (unsigned i = 0; i < seats.size(); ++i) write(in.seats[i], seats[i]);
}

void read(Reading& r, schema::GroupState::Reader in, GroupState& out) {
  if (in.getHasJob()) out.job = read_body(r, in.getJob());
  if (in.getHasPlan()) read(r, in.getPlan(), out.plan.emplace());
  if (in.getHasBefore()) read(r, in.getBefore(), out.before.emplace());
  if (in.getHasEnd()) out.end = read_body(r, in.getEnd());
  if (in.getHasRestart()) out.restart = read_body(r, in.getRestart());
  const auto lives = in.getLives();
  out.lives.resize(r.bounded(lives, limits::kLives, "lives of a group"));
  for (unsigned i = 0; i < out.lives.size(); ++i) {
    GroupState::Life& life = out.lives[i];
    read(r, lives[i].getJoin(), life.join);
    life.leaving = lives[i].getLeaving();
    life.dead = lives[i].getDead();
    life.planned = lives[i].getPlanned();
    life.since = lives[i].getSince();
  }
  const auto epochs = in.getEpochs();
  out.epochs.resize(r.bounded(epochs, limits::kMembers + 4, "epochs of a group"));
  for (unsigned i = 0; i < out.epochs.size(); ++i) {
    out.epochs[i].id = read(epochs[i].getId());
    const auto nonces = epochs[i].getNonces();
    const auto n = r.bounded(nonces, limits::kMembers, "members of an epoch");
    for (unsigned k = 0; k < n; ++k) out.epochs[i].nonces.push_back(Nonce(nonces[k]));
  }
  out.next_counter = in.getNextCounter();
  out.plans = in.getPlans();
  out.last_base = Version(in.getLastBase());
  out.last_fresh = read(in.getLastFresh());
  const auto checkpoints = in.getCheckpoints();
  const auto n = r.bounded(checkpoints, limits::kCheckpoints, "checkpoints of a group");
  for (unsigned i = 0; i < n; ++i) out.checkpoints.push_back(read(r, checkpoints[i]));
  out.start = Version(in.getStart());
  out.reached = Version(in.getReached());
  const auto seats = in.getSeats();
  out.seats.resize(r.bounded(seats, limits::kSeats, "places of a group"));
  for (unsigned i = 0; i < out.seats.size(); ++i) out.seats[i] = read(r, seats[i]);
  r.need(out.next_counter != 0, "group's state is empty");
}

void write(const Entry& in, schema::Entry::Builder out) {
  std::visit([&](const auto& body) { write_body(body, out); }, in);
}

void read(Reading& r, schema::Entry::Reader in, Entry& out) {
  switch (in.which()) {
    case schema::Entry::UNSET:
      r.need(false, "entry of the log is empty");
      return;
    case schema::Entry::JOB_STARTED:
      out = read_body(r, in.getJobStarted());
      return;
    case schema::Entry::JOINED:
      read(r, in.getJoined(), out.emplace<Joined>().join);
      return;
    case schema::Entry::LEAVE_ANNOUNCED:
      out = LeaveAnnounced{read(in.getLeaveAnnounced().getWho())};
      return;
    case schema::Entry::LOST:
      out = read_body(in.getLost());
      return;
    case schema::Entry::PLAN:
      read(r, in.getPlan(), out.emplace<Plan>());
      return;
    case schema::Entry::JOB_ENDED:
      out = read_body(r, in.getJobEnded());
      return;
    case schema::Entry::PUBLISHED:
      out = read_body(r, in.getPublished());
      return;
    case schema::Entry::DAMAGED:
      out = read_body(r, in.getDamaged());
      return;
    case schema::Entry::COORDINATOR_AT:
      out = read(r, in.getCoordinatorAt());
      return;
    case schema::Entry::RESTARTED:
      out = read_body(r, in.getRestarted());
      return;
  }
  r.unknown("entry of the log is of a kind that this build does not know");
}

}  // namespace starling::wire
