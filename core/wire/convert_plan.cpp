#include <cstring>

#include "core/base/check.h"
#include "core/wire/codec.h"
#include "core/wire/convert.h"
#include "core/wire/limits.h"

namespace starling::wire {
namespace {

schema::PlanKind to_schema(PlanKind kind) {
  switch (kind) {
    case PlanKind::kFresh:
      return schema::PlanKind::FRESH;
    case PlanKind::kForced:
      return schema::PlanKind::FORCED;
    case PlanKind::kPrepared:
      return schema::PlanKind::PREPARED;
  }
  STARLING_CHECK_MSG(false, "plan kind " << static_cast<int>(kind));
  return schema::PlanKind::UNSET;
}

schema::BeginAt to_schema(BeginAt begin) {
  switch (begin) {
    case BeginAt::kVote:
      return schema::BeginAt::VOTE;
    case BeginAt::kGather:
      return schema::BeginAt::GATHER;
    case BeginAt::kCompute:
      return schema::BeginAt::COMPUTE;
  }
  STARLING_CHECK_MSG(false, "beginning " << static_cast<int>(begin));
  return schema::BeginAt::UNSET;
}

schema::WorkerRole to_schema(WorkerRole role) {
  switch (role) {
    case WorkerRole::kBoth:
      return schema::WorkerRole::BOTH;
    case WorkerRole::kCompute:
      return schema::WorkerRole::COMPUTE;
    case WorkerRole::kHold:
      return schema::WorkerRole::HOLD;
  }
  STARLING_CHECK_MSG(false, "role " << static_cast<int>(role));
  return schema::WorkerRole::UNSET;
}

PlanKind from_schema(Reading& r, schema::PlanKind kind) {
  switch (kind) {
    case schema::PlanKind::FRESH:
      return PlanKind::kFresh;
    case schema::PlanKind::FORCED:
      return PlanKind::kForced;
    case schema::PlanKind::PREPARED:
      return PlanKind::kPrepared;
    case schema::PlanKind::UNSET:
      break;
  }
  r.need(false, "plan is of no known kind");
  return PlanKind::kFresh;
}

BeginAt from_schema(Reading& r, schema::BeginAt begin) {
  switch (begin) {
    case schema::BeginAt::VOTE:
      return BeginAt::kVote;
    case schema::BeginAt::GATHER:
      return BeginAt::kGather;
    case schema::BeginAt::COMPUTE:
      return BeginAt::kCompute;
    case schema::BeginAt::UNSET:
      break;
  }
  r.need(false, "plan begins at no known point");
  return BeginAt::kCompute;
}

WorkerRole from_schema(Reading& r, schema::WorkerRole role) {
  switch (role) {
    case schema::WorkerRole::BOTH:
      return WorkerRole::kBoth;
    case schema::WorkerRole::COMPUTE:
      return WorkerRole::kCompute;
    case schema::WorkerRole::HOLD:
      return WorkerRole::kHold;
    case schema::WorkerRole::UNSET:
      break;
  }
  r.need(false, "worker has no known role");
  return WorkerRole::kBoth;
}

void write_member(const Member& in, schema::Member::Builder out) {
  write(in.who, out.initWho());
  out.setName(text(in.name, limits::kNameBytes));
  out.setHost(text(in.host, limits::kNameBytes));
  out.setPort(in.port);
  out.setFailureDomain(text(in.failure_domain, limits::kNameBytes));
  out.setJoiner(in.joiner);
  out.setDraining(in.draining);
  out.setRole(to_schema(in.role));
}

void read_member(Reading& r, schema::Member::Reader in, Member& out) {
  out.who = read(in.getWho());
  out.name = r.text(in.getName(), limits::kNameBytes, "member's name");
  out.host = r.text(in.getHost(), limits::kNameBytes, "member's host");
  out.port = in.getPort();
  out.failure_domain = r.text(in.getFailureDomain(), limits::kNameBytes, "member's failure domain");
  out.joiner = in.getJoiner();
  out.draining = in.getDraining();
  out.role = from_schema(r, in.getRole());
}

void write_holders(const Plan& in, schema::Plan::Builder out) {
  std::size_t all = 0;
  for (const auto& holders : in.holders) all += holders.size();
  auto counts = out.initHolderCounts(static_cast<unsigned>(in.holders.size()));
  auto flat = out.initHolders(static_cast<unsigned>(all));
  unsigned next = 0;
  for (unsigned s = 0; s < counts.size(); ++s) {
    counts.set(s, static_cast<std::uint16_t>(in.holders[s].size()));
    for (Rank rank : in.holders[s]) flat.set(next++, static_cast<std::uint16_t>(rank));
  }
}

void read_holders(Reading& r, schema::Plan::Reader in, Plan& out) {
  const auto counts = in.getHolderCounts();
  const auto flat = in.getHolders();
  const auto segments = r.bounded(counts, limits::kSegments, "plan's segments");
  const auto all = r.bounded(flat, limits::kHolders, "plan's holders");
  out.holders.resize(segments);
  std::size_t next = 0;
  for (std::size_t s = 0; s < segments; ++s) {
    const std::size_t count = counts[static_cast<unsigned>(s)];
    if (!r.need(count <= all - next, "plan names more holders than it lists")) return;
    out.holders[s].reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      out.holders[s].push_back(Rank(flat[static_cast<unsigned>(next++)]));
  }
  r.need(next == all, "plan lists more holders than it names");
}

void write_moves(const Plan& in, schema::Plan::Builder out) {
  auto moves = out.initMoves(static_cast<unsigned>(in.moves.size()));
  for (unsigned i = 0; i < moves.size(); ++i) {
    const Move& move = in.moves[i];
    moves[i].setFirst(move.segments.first);
    moves[i].setCount(move.segments.count);
    moves[i].setSource(static_cast<std::uint16_t>(move.source));
    moves[i].setTarget(static_cast<std::uint16_t>(move.target));
    moves[i].setStepOffset(move.step_offset);
  }
}

void read_moves(Reading& r, schema::Plan::Reader in, Plan& out) {
  const auto moves = in.getMoves();
  const auto n = r.bounded(moves, limits::kMoves, "plan's moves");
  out.moves.reserve(n);
  for (unsigned i = 0; i < n; ++i)
    out.moves.push_back({{SegmentId(moves[i].getFirst()), moves[i].getCount()},
                         Rank(moves[i].getSource()),
                         Rank(moves[i].getTarget()),
                         moves[i].getStepOffset()});
}

void write_machine(const Machine& in, schema::Machine::Builder out) {
  out.setProcessors(in.processors);
  out.setMemory(in.memory);
  out.setMemoryFree(in.memory_free);
  out.setOpenFiles(in.open_files);
  out.setDiskFree(in.disk_free);
  out.setFirstGradientNs(in.first_gradient_ns);
  out.setClockMs(in.clock_ms);
  out.setClockAheadMs(in.clock_ahead_ms);
  const auto device = cut(in.device, limits::kNameBytes);
  out.setDevice(text(device, limits::kNameBytes));
}

Machine read_machine(Reading& r, schema::Machine::Reader in) {
  Machine out;
  out.processors = in.getProcessors();
  out.memory = in.getMemory();
  out.memory_free = in.getMemoryFree();
  out.open_files = in.getOpenFiles();
  out.disk_free = in.getDiskFree();
  out.first_gradient_ns = in.getFirstGradientNs();
  out.clock_ms = in.getClockMs();
  out.clock_ahead_ms = in.getClockAheadMs();
  out.device = r.text(in.getDevice(), limits::kNameBytes, "join's device");
  return out;
}

}  // namespace

std::string cut(const std::string& text, std::size_t max) {
  if (text.size() <= max) return text;
  std::size_t n = max;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) --n;
  return text.substr(0, n);
}

capnp::Text::Reader text(const std::string& text, std::size_t max) {
  STARLING_CHECK_MSG(text.size() <= max, "text of " << text.size() << " bytes, at most " << max);
  return {text.c_str(), text.size()};
}

void write(const EpochId& in, schema::EpochId::Builder out) {
  out.setTerm(in.term);
  out.setCounter(in.counter);
}

void write(const Incarnation& in, schema::Incarnation::Builder out) {
  out.setCounter(in.counter);
  out.setNonce(in.nonce);
}

void write(const Digest& in, schema::Digest::Builder out) {
  out.setLow(in[0]);
  out.setHigh(in[1]);
}

void write(const StepRecord& in, schema::StepRecord::Builder out) {
  out.setVersion(in.version);
  out.setLoss(in.loss);
  out.setNorm(in.norm);
  out.setTokens(in.tokens);
  out.setSkipped(in.skipped);
  out.setLedgerHash(in.ledger_hash);
  write(in.digest, out.initDigest());
  if (!in.metrics.empty())
    write(in.metrics, out.initMetrics(static_cast<unsigned>(in.metrics.size())));
  out.setScale(in.scale.log2);
  out.setScaleSteps(in.scale.steps);
  if (!in.evaluation.empty())
    write(in.evaluation, out.initEvaluation(static_cast<unsigned>(in.evaluation.size())));
}

EpochId read(schema::EpochId::Reader in) {
  return {in.getTerm(), in.getCounter()};
}
Incarnation read(schema::Incarnation::Reader in) {
  return {in.getCounter(), Nonce(in.getNonce())};
}
Digest read(schema::Digest::Reader in) {
  return {in.getLow(), in.getHigh()};
}

StepRecord read(schema::StepRecord::Reader in) {
  StepRecord out;
  out.version = Version(in.getVersion());
  out.loss = in.getLoss();
  out.norm = in.getNorm();
  out.tokens = in.getTokens();
  out.skipped = in.getSkipped();
  out.ledger_hash = in.getLedgerHash();
  out.digest = read(in.getDigest());
  out.metrics = read(in.getMetrics(), kMetricsMax);
  out.scale = {std::min(in.getScale(), LossScaleRule::kMax), in.getScaleSteps()};
  out.evaluation = read(in.getEvaluation(), 1 + kMetricsMax);
  return out;
}

void write(const std::vector<double>& in, capnp::List<double>::Builder out) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, in[i]);
}
std::vector<double> read(capnp::List<double>::Reader in, std::size_t most) {
  std::vector<double> out;
  for (unsigned i = 0; i < in.size() && i < most; ++i) out.push_back(in[i]);
  return out;
}

void write(const Join& in, schema::Join::Builder out) {
  write(in.who, out.initWho());
  out.setName(text(in.name, limits::kNameBytes));
  out.setHost(text(in.host, limits::kNameBytes));
  out.setPort(in.port);
  out.setFailureDomain(text(in.failure_domain, limits::kNameBytes));
  out.setPid(in.pid);
  out.setJobHash(in.job_hash);
  write(in.fingerprint, out.initFingerprint());
  const auto line = cut(in.fingerprint_text, limits::kLineBytes);
  out.setFingerprintText(text(line, limits::kLineBytes));
  write(in.data, out.initData());
  out.setRole(to_schema(in.role));
  write_machine(in.machine, out.initMachine());
}

void read(Reading& r, schema::Join::Reader in, Join& out) {
  out.who = read(in.getWho());
  out.name = r.text(in.getName(), limits::kNameBytes, "join's name");
  out.host = r.text(in.getHost(), limits::kNameBytes, "join's host");
  out.port = in.getPort();
  out.failure_domain = r.text(in.getFailureDomain(), limits::kNameBytes, "join's failure domain");
  out.pid = in.getPid();
  out.job_hash = in.getJobHash();
  out.fingerprint = read(in.getFingerprint());
  out.fingerprint_text = r.text(in.getFingerprintText(), limits::kLineBytes, "join's fingerprint");
  out.data = read(in.getData());
  out.role = from_schema(r, in.getRole());
  out.machine = read_machine(r, in.getMachine());
  r.need(out.who.nonce != 0, "join names no incarnation");
}

template <class Builder>
void write_rates(const std::vector<RateChange>& in, Builder out) {
  STARLING_CHECK(in.size() <= limits::kRateChanges);
  if (in.empty()) return;  // as builds that know none write it
  auto rates = out.initRates(static_cast<unsigned>(in.size()));
  for (unsigned i = 0; i < rates.size(); ++i) {
    rates[i].setFrom(in[i].from);
    rates[i].setPeakRate(in[i].peak_rate);
  }
}

template <class Reader>
std::vector<RateChange> read_rates(Reading& r, Reader in) {
  std::vector<RateChange> out;
  const auto rates = in.getRates();
  const auto n = r.bounded(rates, limits::kRateChanges, "changes of the rate");
  out.reserve(n);
  for (unsigned i = 0; i < n; ++i) {
    out.push_back({Version(rates[i].getFrom()), rates[i].getPeakRate()});
    r.need(is_peak_rate(out.back().peak_rate), "a changed peak rate is out of range");
    r.need(i == 0 || out[i - 1].from <= out[i].from, "changes of the rate are out of order");
  }
  return out;
}

void write(const Plan& in, schema::Plan::Builder out) {
  const auto fault = plan_fault(in);
  STARLING_CHECK_MSG(fault.empty(), fault);
  write(in.id, out.initId());
  write(in.predecessor, out.initPredecessor());
  out.setKind(to_schema(in.kind));
  auto members = out.initMembers(static_cast<unsigned>(in.members.size()));
  for (unsigned i = 0; i < members.size(); ++i) write_member(in.members[i], members[i]);
  out.setKey(data(in.key));
  write_holders(in, out);
  write_moves(in, out);
  out.setBase(in.base);
  out.setBegin(to_schema(in.begin));
  auto shares = out.initShares(static_cast<unsigned>(in.shares.size()));
  for (unsigned m = 0; m < shares.size(); ++m)
    shares.set(m, static_cast<std::uint16_t>(in.shares[m]));
  const auto cause = cut(in.cause, limits::kLineBytes);
  out.setCause(text(cause, limits::kLineBytes));
  auto entered = out.initEntered(static_cast<unsigned>(in.entered.size()));
  for (unsigned i = 0; i < entered.size(); ++i) write(in.entered[i], entered[i]);
  out.setDoubtedFrom(in.doubted_from);
  write_rates(in.rates, out);
}

void read(Reading& r, schema::Plan::Reader in, Plan& out) {
  out.id = read(in.getId());
  out.predecessor = read(in.getPredecessor());
  out.kind = from_schema(r, in.getKind());
  const auto members = in.getMembers();
  out.members.resize(r.bounded(members, limits::kMembers, "plan's members"));
  for (unsigned i = 0; i < out.members.size(); ++i) read_member(r, members[i], out.members[i]);
  read_fixed(r, in.getKey(), out.key, "plan's key does not have 32 bytes");
  read_holders(r, in, out);
  read_moves(r, in, out);
  out.base = Version(in.getBase());
  out.begin = from_schema(r, in.getBegin());
  const auto shares = in.getShares();
  const auto n = r.bounded(shares, limits::kMicroBatches, "plan's shares");
  out.shares.reserve(n);
  for (unsigned m = 0; m < n; ++m) out.shares.push_back(Rank(shares[m]));
  out.cause = r.text(in.getCause(), limits::kLineBytes, "plan's cause");
  const auto entered = in.getEntered();
  const auto epochs = r.bounded(entered, limits::kMembers, "plan's entered epochs");
  out.entered.reserve(epochs);
  for (unsigned i = 0; i < epochs; ++i) out.entered.push_back(read(entered[i]));
  out.doubted_from = Version(in.getDoubtedFrom());
  out.rates = read_rates(r, in);
  if (!r.fault().empty()) return;
  const auto fault = plan_fault(out);
  r.need(fault.empty(), fault.c_str());
}

void write(const SegmentDigest& in, schema::SegmentDigest::Builder out) {
  out.setSegment(in.segment);
  write(in.digest, out.initDigest());
}

SegmentDigest read(Reading& r, schema::SegmentDigest::Reader in) {
  r.need(in.getSegment() < limits::kSegments, "segment of a shard is out of range");
  return {SegmentId(in.getSegment()), read(in.getDigest())};
}

void write(const Checkpoint& in, schema::Checkpoint::Builder out) {
  out.setVersion(in.version);
  write(in.digest, out.initDigest());
  write(in.fingerprint, out.initFingerprint());
  const auto line = cut(in.fingerprint_text, limits::kLineBytes);
  out.setFingerprintText(text(line, limits::kLineBytes));
  write(in.data, out.initData());
  out.setDoubtedFrom(in.doubted_from);
  write_rates(in.rates, out);
}

Checkpoint read(Reading& r, schema::Checkpoint::Reader in) {
  return {Version(in.getVersion()),
          read(in.getDigest()),
          read(in.getFingerprint()),
          r.text(in.getFingerprintText(), limits::kLineBytes, "checkpoint's fingerprint"),
          read(in.getData()),
          Version(in.getDoubtedFrom()),
          read_rates(r, in)};
}

}  // namespace starling::wire

namespace starling {

std::string plan_fault(const Plan& plan) {
  const std::size_t world = plan.members.size();
  if (world > limits::kMembers) return "plan has too many members";
  if (plan.entered.size() > limits::kMembers) return "plan names too many entered epochs";
  if (plan.holders.size() > limits::kSegments) return "plan has too many segments";
  if (plan.moves.size() > limits::kMoves) return "plan has too many moves";
  if (plan.shares.size() > limits::kMicroBatches) return "plan has too many micro-batches";
  std::size_t all = 0;
  for (const auto& holders : plan.holders) {
    all += holders.size();
    if (holders.size() > world) return "a segment has more holders than the plan has members";
    for (Rank rank : holders)
      if (rank >= world) return "a holder's rank is not below the number of members";
  }
  if (all > limits::kHolders) return "plan has too many holders";
  for (const Move& move : plan.moves) {
    if (move.source >= world || move.target >= world)
      return "a move's rank is not below the number of members";
    if (std::uint64_t{move.segments.first} + move.segments.count > plan.holders.size())
      return "a move's segments are not among the plan's";
  }
  for (Rank rank : plan.shares)
    if (rank >= world) return "a share's rank is not below the number of members";
  return {};
}

}  // namespace starling
