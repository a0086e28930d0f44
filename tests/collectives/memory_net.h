#pragma once
// Transports in memory for the collectives' tests: frames of a pair stay in order, everything else
// arrives in an order drawn at random.

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "collectives/frame_sender.h"
#include "core/base/check.h"

namespace starling::collectives {

class MemoryNet {
 public:
  using Handler = std::function<Result<>(Rank to, Rank from, const Frame&)>;

  explicit MemoryNet(std::uint32_t world) : world_(world), queues_(world * world) {
    for (Rank r = 0; r < world; ++r) ends_.push_back(std::make_unique<End>(*this, r));
  }

  FrameSender& end(Rank rank) { return *ends_[rank]; }
  // Frames on their way from one rank to another, in order; tests change and lose them here.
  std::deque<Frame>& queue(Rank from, Rank to) { return queues_[from * world_ + to]; }

  // Delivers one frame of a random pair; false: nothing is on its way.
  template <class Random>
  bool deliver_one(Random& random, const Handler& handler, Result<>* result) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < queues_.size(); ++i)
      if (!queues_[i].empty()) ready.push_back(i);
    if (ready.empty()) return false;
    const std::size_t i = ready[random() % ready.size()];
    const Frame frame = std::move(queues_[i].front());
    queues_[i].pop_front();
    *result = handler(static_cast<Rank>(i % world_), static_cast<Rank>(i / world_), frame);
    return true;
  }

  // Delivers all there is; the first error ends it.
  template <class Random>
  Result<> deliver_all(Random& random, const Handler& handler) {
    Result<> result = ok();
    while (result && deliver_one(random, handler, &result)) {
    }
    return result;
  }

 private:
  class End : public FrameSender {
   public:
    End(MemoryNet& net, Rank self) : net_(net), self_(self) {}
    Rank self() const override { return self_; }
    std::uint32_t world() const override { return net_.world_; }
    void send(Rank to, FrameHeader header, Payload payload) override {
      STARLING_CHECK(to < net_.world_ && to != self_);
      net_.queue(self_, to).push_back(make_frame(header, payload));
    }

   private:
    MemoryNet& net_;
    const Rank self_;
  };

  const std::uint32_t world_;
  std::vector<std::deque<Frame>> queues_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace starling::collectives
