#include "actors/gateway/roles.h"

namespace starling::actors {
namespace {

struct Speaker {
  Role role;
  template <SaidByWorkers Kind>
  bool operator()(const Kind&) const {
    return role == Role::kWorker;
  }
  template <SaidAmongCoordinators Kind>
  bool operator()(const Kind&) const {
    return role == Role::kCoordinator;
  }
  template <SaidByAdmins Kind>
  bool operator()(const Kind&) const {
    return role == Role::kAdmin;
  }
  // A coordinator sends these answers; no client may send them.
  template <SaidByCoordinators Kind>
  bool operator()(const Kind&) const {
    return false;
  }
};

}  // namespace

bool may_say(Role role, const Message& message) {
  return std::visit(Speaker{role}, message);
}

}  // namespace starling::actors
