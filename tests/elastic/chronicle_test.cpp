// What coordinators that do not lead tell of workers and epochs.

#include "elastic/membership/chronicle.h"

#include <doctest/doctest.h>

namespace starling::elastic {
namespace {

std::vector<std::string> told(Group& group, const Entry& entry) {
  std::vector<std::string> words;
  if (!group.apply(entry)) return {"void"};
  for (const Event& event : told_of(group, entry)) {
    const auto* worker = std::get_if<event::WorkerChanged>(&event);
    words.push_back(worker ? worker->name + " " + to_string(worker->what)
                           : "epoch " + to_string(std::get<event::EpochFormed>(event).id));
  }
  return words;
}

Joined joined(std::uint64_t nonce) {
  Joined entry;
  entry.join.who = {0, Nonce(nonce)};
  entry.join.name = std::string("w").append(std::to_string(nonce));
  return entry;
}

Plan plan(EpochId id, EpochId predecessor, std::vector<std::uint64_t> members) {
  Plan p;
  p.id = id;
  p.predecessor = predecessor;
  for (const std::uint64_t nonce : members) {
    Member m;
    m.who = {nonce, Nonce(nonce)};
    p.members.push_back(m);
  }
  return p;
}

TEST_CASE("chronicle: the log tells who came, who went and how, and every epoch") {
  using Words = std::vector<std::string>;
  Group group;
  CHECK(told(group, JobStarted{}) == Words{});
  for (const std::uint64_t nonce : {1u, 2u, 3u, 4u})
    CHECK(told(group, joined(nonce)) ==
          Words{std::string("w").append(std::to_string(nonce)).append(" joined")});
  CHECK(told(group, plan({1, 1}, {}, {1, 2, 3, 4})) == Words{"epoch 1.1"});
  CHECK(told(group, LeaveAnnounced{{2, 2}}) == Words{});
  CHECK(told(group, Lost{{3, 3}, true}) == Words{"w3 lost"});
  CHECK(told(group, plan({1, 2}, {1, 1}, {1})) == Words{"epoch 1.2", "w2 left", "w4 fenced"});
  CHECK(told(group, plan({1, 3}, {1, 1}, {1})) == Words{"void"});
}

}  // namespace
}  // namespace starling::elastic
