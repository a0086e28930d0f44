#pragma once
// All ranks of one transport in one process.

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/device/emulated.h"
#include "tests/nccl/member.h"

namespace starling::collectives {

class World {
 public:
  // Orders, as the stand-in takes them.
  explicit World(std::uint32_t size, MemberOptions options = {}, const std::string& orders = "") {
    give_orders(orders);
    for (std::uint32_t rank = 0; rank < size; ++rank)
      members_.push_back(std::make_unique<Member>(device_, options));
  }
  ~World() {
    // A member that waits for a peer's end would wait for ever if the peer's transport were still there.
    for (const auto& member : members_) member->drop();
  }

  // A transport for all, without waiting for it.
  void begin(std::size_t staging_bytes) {
    const Bytes id = members_[0]->library().make_id().value();
    const auto world = static_cast<std::uint32_t>(members_.size());
    for (std::uint32_t rank = 0; rank < world; ++rank)
      members_[rank]->connect({rank, world}, id, staging_bytes);
  }
  void make(std::size_t staging_bytes) {
    begin(staging_bytes);
    for (const auto& member : members_) CHECK(member->next() == "ready");
  }
  void begin_beside() {
    const Bytes id = members_[0]->library().make_id().value();
    for (const auto& member : members_) member->connect_beside(id);
  }
  void ask(const Table& table, std::uint64_t seed) {
    for (const auto& member : members_) member->exchange(table, seed);
  }
  void round_is_right(const Table& table, std::uint64_t seed) {
    ask(table, seed);
    for (const auto& member : members_) {
      CHECK(member->next() == "round");
      CHECK(member->right(table, seed));
    }
  }

  kernels::EmulatedDevice& device() { return device_; }
  Member& operator[](std::size_t rank) { return *members_[rank]; }
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }

 private:
  kernels::EmulatedDevice device_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace starling::collectives
