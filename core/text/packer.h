#pragma once
// Documents fill sequences of one length without being cut.

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "core/base/result.h"

namespace starling {

// Best fit with a bounded number of open sequences: a document goes where it leaves least room (Johnson, 1973,
// "Near-Optimal Bin Packing Algorithms"). Which sequences come, and in which order, depends on the documents alone.
// One thread.
class Packer {
 public:
  // Takes a whole sequence. An error ends what is packed.
  using Take = std::function<Result<>(std::span<const std::uint32_t> sequence)>;
  static constexpr std::size_t kOpenMax = 1024;  // sequences

  // `fill`: the token that ends what is not full.
  Packer(std::uint32_t length, std::uint32_t fill, Take take)
      : length_(length), fill_(fill), take_(std::move(take)) {}

  // Of a document that is longer than a sequence each whole sequence is one, and what remains goes where it fits. The
  // first token of each piece gets `mark` added by |: no token before it says it.
  Result<> add(std::span<const std::uint32_t> document, std::uint32_t mark);
  // Ends all sequences that are open.
  Result<> finish();

  std::uint64_t filling() const { return filling_; }  // tokens that fill sequences

 private:
  using Sequence = std::vector<std::uint32_t>;
  using Open = std::list<Sequence>;  // the oldest first

  Result<> place(std::span<const std::uint32_t> piece, std::uint32_t mark);
  Result<> end(Open::iterator sequence);
  // Forgets that the sequence has so much room.
  void forget(Open::iterator sequence);

  const std::uint32_t length_, fill_;
  const Take take_;
  Open open_;
  std::multimap<std::size_t, Open::iterator> by_room_;  // equals: the oldest first
  std::uint64_t filling_ = 0;
};

}  // namespace starling
