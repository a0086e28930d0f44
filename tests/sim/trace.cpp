#include "tests/sim/trace.h"

#include <sstream>

namespace starling::sim {
namespace {

using namespace elastic::worker_event;
using namespace elastic::worker_command;

template <class T>
std::string list(const T& values) {
  std::ostringstream out;
  out << "[";
  for (const auto& v : values) out << (out.tellp() > 1 ? " " : "") << +v;
  out << "]";
  return out.str();
}

std::string flags(const std::vector<bool>& values) {
  std::string out;
  for (const bool v : values) out += v ? '1' : '0';
  return out;
}

std::string version(Version v) {
  return v == kNoVersion ? "none" : std::to_string(v);
}

struct Line {
  std::ostringstream out;
  template <class T>
  Line& operator<<(const T& value) {
    out << value;
    return *this;
  }
  operator std::string() const { return out.str(); }  // NOLINT: a line is a string
};

Line line(const char* what) {
  Line l;
  l << what;
  return l;
}
Line line(const char* what, const EpochId& epoch) {
  Line l;
  l << what << " " << to_string(epoch);
  return l;
}
Line line(const char* what, const EpochId& epoch, Version v) {
  Line l;
  l << what << " " << to_string(epoch) << " v" << version(v);
  return l;
}

struct MessageText {
  std::string operator()(const Report& m) const {
    return line("report promise", m.promise)
           << " entered " << to_string(m.entered) << " v" << version(m.version)
           << (m.pending ? " pending" : "") << (m.parameters_complete ? " complete" : "")
           << " share " << list(m.share) << " done " << list(m.done) << " copies "
           << flags(m.copies);
  }
  std::string operator()(const Heartbeat& m) const {
    return line("heartbeat", m.entered, m.version) << " ready " << to_string(m.ready_for);
  }
  std::string operator()(const Freeze& m) const { return line("freeze", m.asked); }
  std::string operator()(const Committed& m) const { return "committed " + describe(m.plan); }
  std::string operator()(const Finished& m) const { return line("finished", m.epoch, m.version); }
  std::string operator()(const Progress& m) const {
    return line("progress", m.epoch, m.record.version);
  }
  std::string operator()(const Noted& m) const { return line("noted v") << m.version; }
  std::string operator()(const Ended& m) const {
    return line("ended ") << int{m.exit_code} << " " << m.reason;
  }
  std::string operator()(const Welcome& m) const { return line("welcome ") << to_string(m.who); }
  std::string operator()(const Join&) const { return "join"; }
  std::string operator()(const starling::Leave&) const { return "leave"; }
  std::string operator()(const Notice&) const { return "notice"; }
  std::string operator()(const Fenced&) const { return "fenced"; }
  std::string operator()(const Released&) const { return "released"; }
  std::string operator()(const Refused& m) const { return "refused " + m.reason; }
  std::string operator()(const ShardWritten& m) const {
    return line("shard written v") << m.version << " " << m.error;
  }
  std::string operator()(const Unloadable& m) const {
    return line("unloadable v") << m.version << " " << m.reason;
  }
  template <class T>
  std::string operator()(const T&) const {
    return "message";
  }
};

struct EventText {
  std::string operator()(const Received& e) const { return "< " + describe(e.body); }
  std::string operator()(const DataHashed&) const { return "data hashed"; }
  std::string operator()(const NoticeGiven& e) const {
    return line("notice ") << e.notice.notice_ms;
  }
  std::string operator()(const StepTimed& e) const { return line("timed v") << e.version; }
  std::string operator()(const Connected& e) const { return line("connected", e.epoch); }
  std::string operator()(const Initialised& e) const { return line("initialised", e.epoch); }
  std::string operator()(const Working& e) const {
    return line("working, orders left ") << e.orders_left;
  }
  std::string operator()(const Failed& e) const { return line("failed ") << e.reason; }
  std::string operator()(const Loading& e) const { return line("loading", e.epoch); }
  std::string operator()(const NotInitialised& e) const {
    return line("not initialised", e.epoch) << " " << e.reason;
  }
  std::string operator()(const CheckpointWritten& e) const {
    return line("checkpoint written v") << e.shard.version << " " << e.shard.error;
  }
  std::string operator()(const Broken& e) const {
    return line("broken", e.epoch) << " peer " << e.peer;
  }
  std::string operator()(const Stopped& e) const { return line("stopped", e.epoch); }
  std::string operator()(const PeerReady& e) const {
    return line("peer ready", e.epoch) << " from " << e.from;
  }
  std::string operator()(const TransportReady& e) const {
    return line("path ready", e.epoch) << " attempt " << e.attempt;
  }
  std::string operator()(const TransportLost& e) const {
    return line("path lost", e.epoch) << " attempt " << e.attempt;
  }
  std::string operator()(const TransportChosen& e) const {
    return line("path told", e.epoch) << (e.on_device ? " direct" : " host");
  }
  std::string operator()(const MicroBatchDone& e) const {
    return line("micro-batch done v") << e.version << " m" << e.row.micro_batch;
  }
  std::string operator()(const Rechecked& e) const {
    return line("rechecked v") << e.version << " m" << e.micro_batch
                               << (e.contribution ? "" : ", not begun");
  }
  std::string operator()(const Compared& e) const { return line("compared", e.epoch, e.version); }
  std::string operator()(const Reduced& e) const { return line("reduced", e.epoch, e.version); }
  std::string operator()(const MovedIn& e) const {
    return line("moved in", e.epoch, e.version)
           << " segment " << e.segments.first << "+" << e.segments.count;
  }
  std::string operator()(const LedgerArrived& e) const {
    return line("ledger", e.epoch, e.version) << " from " << e.from << " rows " << e.rows.size();
  }
  std::string operator()(const VoteArrived& e) const {
    return line("vote", e.epoch, e.vote.version)
           << " from " << e.from << " ready " << to_string(e.vote.ready_for)
           << (e.vote.record.version == kNoVersion ? "" : " with record");
  }
  std::string operator()(const GatherBegun& e) const {
    return line("gather begun", e.epoch, e.version);
  }
  std::string operator()(const Gathered& e) const { return line("gathered", e.epoch, e.version); }
  std::string operator()(const DigestReady& e) const {
    return line("digest ready", e.epoch, e.version);
  }
  std::string operator()(const Evaluated& e) const { return line("evaluated v") << e.version; }
  std::string operator()(const Start&) const { return "start"; }
  std::string operator()(const Tick&) const { return "tick"; }
};

struct CommandText {
  std::string operator()(const ToCoordinators& c) const {
    return std::holds_alternative<Heartbeat>(c.body) ? std::string() : "> " + describe(c.body);
  }
  std::string operator()(const Hold& c) const {
    return line("hold ") << flags(c.segments) << (c.fresh ? " fresh" : "");
  }
  std::string operator()(const Connect& c) const {
    return line("connect", c.plan->id, c.version)
           << " as " << c.self << (c.joiner ? " joiner" : "");
  }
  std::string operator()(const SetVersion& c) const {
    return line("set version", c.epoch, c.version);
  }
  std::string operator()(const SayReady& c) const { return line("say ready", c.epoch); }
  std::string operator()(const elastic::worker_command::Leave& c) const {
    return line("leave", c.epoch);
  }
  std::string operator()(const Stop& c) const { return line("stop", c.epoch); }
  std::string operator()(const Compute& c) const {
    return line("compute v") << version(c.version) << " " << list(c.micro_batches) << " again "
                             << list(c.again);
  }
  std::string operator()(const Evaluate& c) const { return line("evaluate v") << c.version; }
  std::string operator()(const Compare& c) const { return line("compare", c.epoch, c.version); }
  std::string operator()(const OpenStep& c) const {
    return line("open step", c.epoch, c.version) << " path " << c.attempt;
  }
  std::string operator()(const StartReduce& c) const {
    return line("start reduce", c.epoch, c.version) << " of " << c.micro_batches;
  }
  std::string operator()(const SendMove& c) const {
    return line("send move", c.epoch, c.version)
           << " segment " << c.segments.first << "+" << c.segments.count << " to " << c.target;
  }
  std::string operator()(const SendVote& c) const {
    return line("send vote", c.epoch, c.vote.version)
           << " ready " << to_string(c.vote.ready_for)
           << (c.vote.record.version == kNoVersion ? "" : " with record");
  }
  std::string operator()(const Apply& c) const { return line("apply v") << c.record.version; }
  std::string operator()(const ClearAccumulators&) const { return "clear accumulators"; }
  std::string operator()(const DropTotals&) const { return "drop totals"; }
  std::string operator()(const StartGather& c) const {
    return line("start gather", c.epoch, c.version);
  }
  std::string operator()(const Initialise& c) const {
    return line("initialise", c.epoch, c.version);
  }
  std::string operator()(const WriteCheckpoint& c) const {
    return line("write checkpoint", c.epoch, c.version);
  }
  template <class T>
  std::string operator()(const T&) const {
    return {};
  }
};

}  // namespace

std::string describe(const Message& message) {
  return std::visit(MessageText{}, message);
}
std::string describe(const elastic::WorkerEvent& event) {
  return std::visit(EventText{}, event);
}
std::string describe(const elastic::WorkerCommand& command) {
  return std::visit(CommandText{}, command);
}

std::string describe(const Plan& plan) {
  static const char* const kinds[] = {"?", "fresh", "forced", "prepared"};
  static const char* const begins[] = {"?", "vote", "gather", "compute"};
  Line l = line(kinds[static_cast<int>(plan.kind)], plan.id);
  l << " after " << to_string(plan.predecessor) << " base " << plan.base << " begin "
    << begins[static_cast<int>(plan.begin)] << " members";
  for (const Member& m : plan.members)
    l << " " << to_string(m.who) << (m.joiner ? "(joins)" : "") << (m.draining ? "(drains)" : "")
      << (m.role == WorkerRole::kHold      ? "(holds)"
          : m.role == WorkerRole::kCompute ? "(computes)"
                                           : "");
  l << " holders";
  for (const auto& ranks : plan.holders) l << " " << list(ranks);
  for (const Move& m : plan.moves)
    l << " move " << m.segments.first << "+" << m.segments.count << " " << m.source << "->"
      << m.target << "@" << m.step_offset;
  l << " shares " << list(plan.shares) << " cause " << plan.cause;
  return l;
}

}  // namespace starling::sim
