#include "actors/gateway/roles.h"

namespace starling::actors {
namespace {

struct Speaker {
  Role role;
  bool worker() const { return role == Role::kWorker; }
  // What is not named below is what coordinators answer, and travels the other way.
  template <class Answer>
  bool operator()(const Answer&) const {
    return false;
  }
  bool operator()(const Join&) const { return worker(); }
  bool operator()(const Report&) const { return worker(); }
  bool operator()(const Heartbeat&) const { return worker(); }
  bool operator()(const Progress&) const { return worker(); }
  bool operator()(const Leave&) const { return worker(); }
  bool operator()(const Death&) const { return worker(); }
  bool operator()(const Finished&) const { return worker(); }
  bool operator()(const Notice&) const { return worker(); }
  bool operator()(const ShardWritten&) const { return worker(); }
  bool operator()(const Unloadable&) const { return worker(); }
  bool operator()(const RaftMessage&) const { return role == Role::kCoordinator; }
};

}  // namespace

bool may_say(Role role, const Message& message) {
  return std::visit(Speaker{role}, message);
}

}  // namespace starling::actors
