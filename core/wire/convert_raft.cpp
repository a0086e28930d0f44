#include "core/base/check.h"
#include "core/wire/convert.h"
#include "core/wire/limits.h"

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
    case schema::RaftKind::UNSET:
      break;
  }
  r.need(false, "raft message is of no known kind");
  return RaftKind::kAppend;
}

void write_body(const JobStarted& in, schema::Entry::Builder out) {
  auto body = out.initJobStarted();
  body.setJob(data(in.job));
  body.setJobHash(in.job_hash);
  STARLING_CHECK(in.checkpoints.size() <= limits::kCheckpoints);
  auto checkpoints = body.initCheckpoints(static_cast<unsigned>(in.checkpoints.size()));
  for (unsigned i = 0; i < checkpoints.size(); ++i) write(in.checkpoints[i], checkpoints[i]);
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
void write_body(const JobEnded& in, schema::Entry::Builder out) {
  auto body = out.initJobEnded();
  body.setExitCode(in.exit_code);
  const auto reason = cut(in.reason, limits::kLineBytes);
  body.setReason(text(reason, limits::kLineBytes));
  write(in.digest, body.initDigest());
  body.setLoss(in.loss);
  body.setVersion(in.version);
}

void write_body(const Published& in, schema::Entry::Builder out) {
  auto body = out.initPublished();
  write(in.checkpoint, body.initCheckpoint());
  body.setOldest(in.oldest);
}
void write_body(const Damaged& in, schema::Entry::Builder out) {
  auto body = out.initDamaged();
  body.setVersion(in.version);
  const auto reason = cut(in.reason, limits::kLineBytes);
  body.setReason(text(reason, limits::kLineBytes));
}
void write_body(const Restarted& in, schema::Entry::Builder out) {
  auto body = out.initRestarted();
  write(in.lost, body.initLost());
  body.setVersion(in.version);
  const auto cause = cut(in.cause, limits::kLineBytes);
  body.setCause(text(cause, limits::kLineBytes));
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
  return {read(r, in.getCheckpoint()), in.getOldest()};
}

Damaged read_body(Reading& r, schema::Damaged::Reader in) {
  return {in.getVersion(), r.text(in.getReason(), limits::kLineBytes, "reason of a damage")};
}

Restarted read_body(Reading& r, schema::Restarted::Reader in) {
  return {read(in.getLost()), in.getVersion(),
          r.text(in.getCause(), limits::kLineBytes, "restart's cause")};
}

JobEnded read_body(Reading& r, schema::JobEnded::Reader in) {
  JobEnded out;
  out.exit_code = in.getExitCode();
  out.reason = r.text(in.getReason(), limits::kLineBytes, "end's reason");
  out.digest = read(in.getDigest());
  out.loss = in.getLoss();
  out.version = in.getVersion();
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
  }
  r.need(bytes <= limits::kRaftMessageBytes, "raft message's entries have too many bytes");
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
    case schema::Entry::RESTARTED:
      out = read_body(r, in.getRestarted());
      return;
  }
  r.unknown("entry of the log is of a kind that this build does not know");
}

}  // namespace starling::wire
