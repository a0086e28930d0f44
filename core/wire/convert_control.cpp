#include "core/base/check.h"
#include "core/wire/convert.h"
#include "core/wire/limits.h"

namespace starling::wire {
namespace {

using Body = schema::Envelope::Body;

template <class List>
void write_numbers(const std::vector<MicroBatch>& in, List out) {
  STARLING_CHECK(in.size() <= limits::kMicroBatches);
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, in[i]);
}

void write_body(const Join& in, Body::Builder out) {
  write(in, out.initJoin());
}

void write_body(const Report& in, Body::Builder out) {
  STARLING_CHECK(in.copies.size() <= limits::kSegments);
  STARLING_CHECK(in.broken.size() <= limits::kMembers);
  auto body = out.initReport();
  write(in.promise, body.initPromise());
  write(in.entered, body.initEntered());
  body.setVersion(in.version);
  body.setPending(in.pending);
  body.setParametersComplete(in.parameters_complete);
  write_numbers(in.share, body.initShare(static_cast<unsigned>(in.share.size())));
  write_numbers(in.done, body.initDone(static_cast<unsigned>(in.done.size())));
  auto copies = body.initCopies(static_cast<unsigned>(in.copies.size()));
  for (unsigned s = 0; s < copies.size(); ++s) copies.set(s, in.copies[s]);
  auto broken = body.initBroken(static_cast<unsigned>(in.broken.size()));
  for (unsigned i = 0; i < broken.size(); ++i) write(in.broken[i], broken[i]);
  body.setMicroBatchNs(in.micro_batch_ns);
  write(in.may_have_begun, body.initMayHaveBegun());
  body.setUnreached(in.fault == LinkFault::kUnreached);
  body.setSilent(in.fault == LinkFault::kSilent);
}

void write_body(const Heartbeat& in, Body::Builder out) {
  auto body = out.initHeartbeat();
  write(in.entered, body.initEntered());
  body.setVersion(in.version);
  write(in.ready_for, body.initReadyFor());
  body.setMicroBatchNs(in.micro_batch_ns);
  body.setShareLeft(in.share_left);
  body.setLoadLeft(in.load_left);
  body.setOrdersLeft(in.orders_left);
  body.setProgress(in.progress);
  write(in.data, body.initData());
  body.setDirect(in.on_device);
  body.setPathWhy(text(in.transport_why, limits::kLineBytes));
  body.setDataWaitPercent(in.data_wait_percent);
  STARLING_CHECK(in.missed.size() <= limits::kMissed);
  auto missed = body.initMissed(static_cast<unsigned>(in.missed.size()));
  for (unsigned i = 0; i < missed.size(); ++i) missed.set(i, in.missed[i].value());
  STARLING_CHECK(in.differences.size() <= limits::kDifferences);
  auto differences = body.initDifferences(static_cast<unsigned>(in.differences.size()));
  for (unsigned i = 0; i < differences.size(); ++i) {
    const Difference& d = in.differences[i];
    differences[i].setVersion(d.version);
    differences[i].setMicroBatch(d.micro_batch);
    differences[i].setWorker(d.worker);
    differences[i].setRow(d.row);
    differences[i].setFirst(d.first);
    differences[i].setSecond(d.second);
    differences[i].setBy(d.by);
  }
}

void write_body(const Progress& in, Body::Builder out) {
  STARLING_CHECK(in.ledger.size() <= limits::kMicroBatches);
  auto body = out.initProgress();
  write(in.epoch, body.initEpoch());
  write(in.record, body.initRecord());
  body.setWorld(in.world);
  auto ledger = body.initLedger(static_cast<unsigned>(in.ledger.size()));
  for (unsigned m = 0; m < ledger.size(); ++m) {
    const LedgerRow& row = in.ledger[m];
    ledger[m].setMicroBatch(row.micro_batch);
    ledger[m].setWorker(row.worker);
    ledger[m].setLoss(row.loss);
    ledger[m].setTokens(row.tokens);
    ledger[m].setFinite(row.finite);
    ledger[m].setContribution(row.contribution);
    if (!row.metrics.empty())
      write(row.metrics, ledger[m].initMetrics(static_cast<unsigned>(row.metrics.size())));
  }
  body.setStepMs(in.step_ms);
  body.setPeakRate(in.peak_rate);
  body.setDirect(in.on_device);
  if (!in.pause) return;
  auto pause = body.initPause();
  pause.setReportMs(in.pause->report_ms);
  pause.setPlanMs(in.pause->plan_ms);
  pause.setConnectMs(in.pause->connect_ms);
  pause.setComputeMs(in.pause->compute_ms);
  pause.setReduceMs(in.pause->reduce_ms);
  pause.setVoteMs(in.pause->vote_ms);
}

void write_body(const Leave& in, Body::Builder out) {
  out.initLeave().setNoticeMs(in.notice_ms);
}

void write_body(const Notice& in, Body::Builder out) {
  auto body = out.initNotice();
  const auto source = cut(in.source, limits::kNameBytes);
  body.setSource(text(source, limits::kNameBytes));
  const auto said = cut(in.text, limits::kLineBytes);
  body.setText(text(said, limits::kLineBytes));
  body.setNoticeMs(in.notice_ms);
  body.setLeave(in.leave);
}

void write_body(const Death& in, Body::Builder out) {
  auto body = out.initDeath();
  write(in.who, body.initWho());
  body.setPhase(static_cast<schema::WorkPhase>(in.phase));
  const auto reason = cut(in.reason, limits::kLineBytes);
  body.setReason(text(reason, limits::kLineBytes));
  body.setExitCode(in.exit_code);
}

void write_body(const Finished& in, Body::Builder out) {
  auto body = out.initFinished();
  write(in.epoch, body.initEpoch());
  body.setVersion(in.version);
  write(in.digest_part, body.initDigestPart());
  write(in.parameters_part, body.initParametersPart());
  if (!in.evaluation.empty())
    write(in.evaluation, body.initEvaluation(static_cast<unsigned>(in.evaluation.size())));
}

void write_body(const Welcome& in, Body::Builder out) {
  auto body = out.initWelcome();
  write(in.who, body.initWho());
  body.setJobText(text(in.job_text, limits::kJobTextBytes));
}

void write_body(const Refused& in, Body::Builder out) {
  const auto reason = cut(in.reason, limits::kLineBytes);
  out.initRefused().setReason(text(reason, limits::kLineBytes));
}

void write_body(const Freeze& in, Body::Builder out) {
  write(in.asked, out.initFreeze().initAsked());
}
void write_body(const Committed& in, Body::Builder out) {
  write(in.plan, out.initCommitted());
}
void write_body(const Fenced& in, Body::Builder out) {
  if (in.reason.empty()) return out.setFenced();
  const auto reason = cut(in.reason, limits::kLineBytes);
  out.initFencedFor().setReason(text(reason, limits::kLineBytes));
}
void write_body(const Released&, Body::Builder out) {
  out.setReleased();
}

void write_body(const Ended& in, Body::Builder out) {
  auto body = out.initEnded();
  body.setExitCode(in.exit_code);
  const auto reason = cut(in.reason, limits::kLineBytes);
  body.setReason(text(reason, limits::kLineBytes));
  write(in.digest, body.initDigest());
  body.setLoss(in.loss);
  write(in.parameters, body.initParameters());
}

void write_body(const CheckpointAsked& in, Body::Builder out) {
  out.initCheckpointAsked().setAbove(in.above);
}

void write_body(const Noted& in, Body::Builder out) {
  out.initNoted().setVersion(in.version);
}

void write_body(const Seats& in, Body::Builder out) {
  STARLING_CHECK(in.seats.size() <= limits::kSeats);
  write(in, out.initSeats(static_cast<unsigned>(in.seats.size())));
}

void write_body(const ChangeAsked& in, Body::Builder out) {
  write(in, out.initChangeAsked());
}

void write_body(const ChangeAnswered& in, Body::Builder out) {
  write(in, out.initChangeAnswered());
}

void write_body(const AdminAsked& in, Body::Builder out) {
  write(in, out.initAdminAsked());
}

void write_body(const AdminAnswered& in, Body::Builder out) {
  write(in, out.initAdminAnswered());
}

void write_body(const Enrol& in, Body::Builder out) {
  write(in, out.initEnrol());
}

void write_body(const Enrolled& in, Body::Builder out) {
  write(in, out.initEnrolled());
}

void write_body(const LeaderHint& in, Body::Builder out) {
  auto body = out.initLeaderHint();
  body.setCoordinator(in.coordinator);
  body.setTerm(in.term);
  if (in.note.empty()) return;
  const auto note = cut(in.note, limits::kLineBytes);
  body.setNote(text(note, limits::kLineBytes));
}

void write_body(const RaftMessage& in, Body::Builder out) {
  write(in, out.initRaft());
}

void write_body(const ShardWritten& in, Body::Builder out) {
  STARLING_CHECK(in.shard.segments.size() <= limits::kSegments);
  auto body = out.initShardWritten();
  body.setVersion(in.version);
  write(in.record, body.initRecord());
  body.setFile(text(in.shard.file, limits::kNameBytes));
  body.setBytes(in.shard.bytes);
  auto segments = body.initSegments(static_cast<unsigned>(in.shard.segments.size()));
  for (unsigned i = 0; i < segments.size(); ++i) write(in.shard.segments[i], segments[i]);
  const auto error = cut(in.error, limits::kLineBytes);
  body.setError(text(error, limits::kLineBytes));
}

void write_body(const Unloadable& in, Body::Builder out) {
  auto body = out.initUnloadable();
  body.setVersion(in.version);
  const auto reason = cut(in.reason, limits::kLineBytes);
  body.setReason(text(reason, limits::kLineBytes));
}

std::vector<MicroBatch> read_numbers(Reading& r, capnp::List<std::uint32_t>::Reader in,
                                     const char* what) {
  std::vector<MicroBatch> out;
  const auto n = r.bounded(in, limits::kMicroBatches, what);
  out.reserve(n);
  for (unsigned i = 0; i < n; ++i) out.push_back(MicroBatch(in[i]));
  return out;
}

Report read_body(Reading& r, schema::Report::Reader in) {
  Report out;
  out.promise = read(in.getPromise());
  out.entered = read(in.getEntered());
  out.version = Version(in.getVersion());
  out.pending = in.getPending();
  out.parameters_complete = in.getParametersComplete();
  out.share = read_numbers(r, in.getShare(), "report's share");
  out.done = read_numbers(r, in.getDone(), "report's done micro-batches");
  const auto copies = in.getCopies();
  out.copies.resize(r.bounded(copies, limits::kSegments, "report's copies"));
  for (unsigned s = 0; s < out.copies.size(); ++s) out.copies[s] = copies[s];
  const auto broken = in.getBroken();
  out.broken.resize(r.bounded(broken, limits::kMembers, "report's broken peers"));
  for (unsigned i = 0; i < out.broken.size(); ++i) out.broken[i] = read(broken[i]);
  out.micro_batch_ns = in.getMicroBatchNs();
  out.may_have_begun = read(in.getMayHaveBegun());
  out.fault = in.getUnreached() ? LinkFault::kUnreached
              : in.getSilent()  ? LinkFault::kSilent
                                : LinkFault::kEnded;
  for (const auto* list : {&out.share, &out.done})
    for (MicroBatch m : *list)
      r.need(m < limits::kMicroBatches, "a micro-batch of a report is out of range");
  return out;
}

Pause read_pause(Reading& r, schema::Pause::Reader in) {
  const Pause out{in.getReportMs(),  in.getPlanMs(),   in.getConnectMs(),
                  in.getComputeMs(), in.getReduceMs(), in.getVoteMs()};
  for (const double ms :
       {out.report_ms, out.plan_ms, out.connect_ms, out.compute_ms, out.reduce_ms, out.vote_ms})
    r.need(ms >= 0 && ms < 1e12, "a part of a pause is out of range");
  return out;
}

Progress read_body(Reading& r, schema::Progress::Reader in) {
  Progress out;
  out.epoch = read(in.getEpoch());
  out.record = read(in.getRecord());
  out.world = in.getWorld();
  r.need(out.world <= limits::kMembers, "world size of a progress message is out of range");
  const auto ledger = in.getLedger();
  out.ledger.resize(r.bounded(ledger, limits::kMicroBatches, "ledger"));
  for (unsigned m = 0; m < out.ledger.size(); ++m) {
    out.ledger[m] = {MicroBatch(ledger[m].getMicroBatch()),
                     ledger[m].getWorker(),
                     ledger[m].getLoss(),
                     ledger[m].getTokens(),
                     ledger[m].getFinite(),
                     read(ledger[m].getMetrics(), kMetricsMax),
                     ledger[m].getContribution(),
                     {}};
    r.need(out.ledger[m].micro_batch < limits::kMicroBatches,
           "a micro-batch of a ledger is out of range");
  }
  out.step_ms = in.getStepMs();
  out.on_device = in.getDirect();
  out.peak_rate = in.getPeakRate();
  r.need(out.peak_rate == 0 || is_peak_rate(out.peak_rate), "peak rate of a step is out of range");
  if (in.hasPause()) out.pause = read_pause(r, in.getPause());
  return out;
}

Death read_body(Reading& r, schema::Death::Reader in) {
  const auto phase = static_cast<std::uint16_t>(in.getPhase());
  r.need(phase <= static_cast<std::uint16_t>(WorkPhase::kEnd), "phase of a death is out of range");
  return {read(in.getWho()), static_cast<WorkPhase>(phase),
          r.text(in.getReason(), limits::kLineBytes, "reason of a death"), in.getExitCode()};
}

Notice read_body(Reading& r, schema::Notice::Reader in) {
  return {r.text(in.getSource(), limits::kNameBytes, "notice's source"),
          r.text(in.getText(), limits::kLineBytes, "notice's text"), in.getNoticeMs(),
          in.getLeave()};
}

std::vector<Difference> read_differences(Reading& r, schema::Heartbeat::Reader heartbeat) {
  const auto in = heartbeat.getDifferences();
  std::vector<Difference> out(r.bounded(in, limits::kDifferences, "differences"));
  for (unsigned i = 0; i < out.size(); ++i)
    out[i] = {Version(in[i].getVersion()),
              MicroBatch(in[i].getMicroBatch()),
              in[i].getWorker(),
              in[i].getRow(),
              in[i].getFirst(),
              in[i].getSecond(),
              in[i].getBy()};
  return out;
}

Heartbeat read_body(Reading& r, schema::Heartbeat::Reader in) {
  Heartbeat out{read(in.getEntered()),
                Version(in.getVersion()),
                read(in.getReadyFor()),
                in.getMicroBatchNs(),
                in.getShareLeft(),
                in.getLoadLeft(),
                in.getOrdersLeft(),
                in.getProgress(),
                read(in.getData()),
                in.getDirect(),
                r.text(in.getPathWhy(), limits::kLineBytes, "path's reason"),
                {},
                read_differences(r, in),
                in.getDataWaitPercent()};
  const auto missed = in.getMissed();
  out.missed.resize(r.bounded(missed, limits::kMissed, "heartbeat's missed members"));
  for (unsigned i = 0; i < out.missed.size(); ++i) out.missed[i] = Rank(missed[i]);
  return out;
}

Finished read_body(schema::Finished::Reader in) {
  return {read(in.getEpoch()), Version(in.getVersion()), read(in.getDigestPart()),
          read(in.getParametersPart()), read(in.getEvaluation(), 1 + kMetricsMax)};
}

Welcome read_body(Reading& r, schema::Welcome::Reader in) {
  return {read(in.getWho()), r.text(in.getJobText(), limits::kJobTextBytes, "job text")};
}

Ended read_body(Reading& r, schema::Ended::Reader in) {
  return {in.getExitCode(), r.text(in.getReason(), limits::kLineBytes, "end's reason"),
          read(in.getDigest()), in.getLoss(), read(in.getParameters())};
}

ShardWritten read_body(Reading& r, schema::ShardWritten::Reader in) {
  ShardWritten out;
  out.version = Version(in.getVersion());
  out.record = read(in.getRecord());
  out.shard.file = r.text(in.getFile(), limits::kNameBytes, "shard's file name");
  out.shard.bytes = in.getBytes();
  const auto segments = in.getSegments();
  const auto n = r.bounded(segments, limits::kSegments, "shard's segments");
  out.shard.segments.reserve(n);
  for (unsigned i = 0; i < n; ++i) out.shard.segments.push_back(read(r, segments[i]));
  out.error = r.text(in.getError(), limits::kLineBytes, "shard's error");
  return out;
}

Unloadable read_body(Reading& r, schema::Unloadable::Reader in) {
  return {Version(in.getVersion()),
          r.text(in.getReason(), limits::kLineBytes, "reason of an unloadable")};
}

}  // namespace

void write(const Message& in, Body::Builder out) {
  std::visit([&](const auto& body) { write_body(body, out); }, in);
}

void read(Reading& r, Body::Reader in, Message& out) {
  switch (in.which()) {
    case Body::UNSET:
      r.need(false, "envelope is empty");
      return;
    case Body::JOIN:
      read(r, in.getJoin(), out.emplace<Join>());
      return;
    case Body::REPORT:
      out = read_body(r, in.getReport());
      return;
    case Body::HEARTBEAT:
      out = read_body(r, in.getHeartbeat());
      return;
    case Body::PROGRESS:
      out = read_body(r, in.getProgress());
      return;
    case Body::LEAVE:
      out = Leave{in.getLeave().getNoticeMs()};
      return;
    case Body::DEATH:
      out = read_body(r, in.getDeath());
      return;
    case Body::FINISHED:
      out = read_body(in.getFinished());
      return;
    case Body::WELCOME:
      out = read_body(r, in.getWelcome());
      return;
    case Body::REFUSED:
      out = Refused{r.text(in.getRefused().getReason(), limits::kLineBytes, "refusal's reason")};
      return;
    case Body::FREEZE:
      out = Freeze{read(in.getFreeze().getAsked())};
      return;
    case Body::COMMITTED:
      read(r, in.getCommitted(), out.emplace<Committed>().plan);
      return;
    case Body::FENCED:
      out = Fenced{};
      return;
    case Body::FENCED_FOR:
      out = Fenced{
          r.text(in.getFencedFor().getReason(), limits::kLineBytes, "reason of being left out")};
      return;
    case Body::RELEASED:
      out = Released{};
      return;
    case Body::ENDED:
      out = read_body(r, in.getEnded());
      return;
    case Body::LEADER_HINT:
      out = LeaderHint{in.getLeaderHint().getCoordinator(), in.getLeaderHint().getTerm(),
                       r.text(in.getLeaderHint().getNote(), limits::kLineBytes, "note")};
      return;
    case Body::RAFT:
      read(r, in.getRaft(), out.emplace<RaftMessage>());
      return;
    case Body::NOTICE:
      out = read_body(r, in.getNotice());
      return;
    case Body::SHARD_WRITTEN:
      out = read_body(r, in.getShardWritten());
      return;
    case Body::CHECKPOINT_ASKED:
      out = CheckpointAsked{Version(in.getCheckpointAsked().getAbove())};
      return;
    case Body::NOTED:
      out = Noted{Version(in.getNoted().getVersion())};
      return;
    case Body::SEATS:
      out = read(r, in.getSeats());
      return;
    case Body::CHANGE_ASKED:
      out = read(r, in.getChangeAsked());
      return;
    case Body::CHANGE_ANSWERED:
      out = read(r, in.getChangeAnswered());
      return;
    case Body::ADMIN_ASKED:
      out = read(r, in.getAdminAsked());
      return;
    case Body::ADMIN_ANSWERED:
      out = read(r, in.getAdminAnswered());
      return;
    case Body::ENROL:
      out = read(r, in.getEnrol());
      return;
    case Body::ENROLLED:
      out = read(r, in.getEnrolled());
      return;
    case Body::UNLOADABLE:
      out = read_body(r, in.getUnloadable());
      return;
  }
  r.unknown("message is of a kind that this build does not know");
}

}  // namespace starling::wire
