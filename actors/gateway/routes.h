#pragma once
// Routes tells a server where a peer is: the connection that its
// last message came over, and the name of the key that proved it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/mutex.h"

namespace starling::actors {

struct Route {
  std::string routing_id;  // ROUTER's name of the connection
  std::string name;        // of the key; proven by CURVE
  std::string public_key;  // Z85
  Incarnation who;
};

// Threads: any.
class Routes {
 public:
  // Notes that a message of `who` came over `routing_id`. False: this incarnation belongs to
  // another key; the sender is not `who`. A key keeps its 16 latest incarnations (a worker,
  // its guard and their former lives), so that the table is bounded by the allow list.
  bool learn(const Incarnation& who, const std::string& routing_id, const std::string& name,
             const std::string& public_key);
  // Forgets the routes of all keys that are not on this list: nothing is sent to them any more.
  void forget_all_but(const AllowList& allowed);
  std::optional<Route> find(const Incarnation& who) const;
  std::vector<Route> all() const;
  std::size_t size() const;

 private:
  struct Known {
    Route route;
    std::uint64_t heard = 0;  // rises with every message
  };
  mutable Mutex mutex_;
  std::map<Nonce, Known> by_nonce_ STARLING_GUARDED_BY(mutex_);
  std::map<std::string, std::size_t> incarnations_of_ STARLING_GUARDED_BY(mutex_);
  std::uint64_t clock_ STARLING_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling::actors
