// The words of events.jsonl for what workers and plans do.

#include "core/observe/event.h"

namespace starling {

const char* to_string(WorkerChange what) {
  switch (what) {
    case WorkerChange::kJoined:
      return "joined";
    case WorkerChange::kLeft:
      return "left";
    case WorkerChange::kLost:
      return "lost";
    case WorkerChange::kFenced:
      return "fenced";
  }
  return "unknown";
}

const char* to_string(PlanKind kind) {
  switch (kind) {
    case PlanKind::kFresh:
      return "fresh";
    case PlanKind::kForced:
      return "forced";
    case PlanKind::kPrepared:
      return "prepared";
  }
  return "unknown";
}

const char* to_string(BeginAt begin) {
  switch (begin) {
    case BeginAt::kVote:
      return "vote";
    case BeginAt::kGather:
      return "gather";
    case BeginAt::kCompute:
      return "compute";
  }
  return "unknown";
}

const char* to_string(WorkerRole role) {
  switch (role) {
    case WorkerRole::kBoth:
      return "both";
    case WorkerRole::kCompute:
      return "compute";
    case WorkerRole::kHold:
      return "hold";
  }
  return "unknown";
}

const char* to_string(WorkPhase phase) {
  switch (phase) {
    case WorkPhase::kNone:
      return "none";
    case WorkPhase::kChange:
      return "change";
    case WorkPhase::kCompute:
      return "compute";
    case WorkPhase::kReduce:
      return "reduce";
    case WorkPhase::kVote:
      return "vote";
    case WorkPhase::kApply:
      return "apply";
    case WorkPhase::kGather:
      return "gather";
    case WorkPhase::kEnd:
      return "end";
  }
  return "unknown";
}

std::string names_of_coordinators(const std::vector<std::uint32_t>& places) {
  std::string names;
  for (const std::uint32_t place : places)
    names += (names.empty() ? "coordinator-" : ", coordinator-") + std::to_string(place);
  return names;
}

const char* to_string(AdminAction action) {
  switch (action) {
    case AdminAction::kDrain:
      return "drain";
    case AdminAction::kEvict:
      return "evict";
    case AdminAction::kCheckpoint:
      return "checkpoint";
    case AdminAction::kRate:
      return "rate";
    case AdminAction::kStop:
      return "stop";
  }
  return "unknown";
}

}  // namespace starling
