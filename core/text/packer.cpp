#include "core/text/packer.h"

#include <algorithm>
#include <iterator>

#include "core/base/check.h"

namespace starling {

Result<> Packer::add(std::span<const std::uint32_t> document, std::uint32_t mark) {
  STARLING_CHECK(length_ > 0);
  while (!document.empty()) {
    const auto piece = document.first(std::min<std::size_t>(length_, document.size()));
    STARLING_TRY(place(piece, mark));
    document = document.subspan(piece.size());
  }
  return ok();
}

Result<> Packer::place(std::span<const std::uint32_t> piece, std::uint32_t mark) {
  const auto found = by_room_.lower_bound(piece.size());
  Open::iterator at;
  if (found != by_room_.end()) {
    at = found->second;
    by_room_.erase(found);
  } else {
    if (open_.size() == kOpenMax) {  // the fullest is given up
      STARLING_TRY(end(by_room_.begin()->second));
    }
    at = open_.emplace(open_.end());
    at->reserve(length_);
  }
  const std::size_t first = at->size();
  at->insert(at->end(), piece.begin(), piece.end());
  (*at)[first] |= mark;
  by_room_.emplace(length_ - at->size(), at);
  if (at->size() < length_) return ok();
  return end(at);
}

void Packer::forget(Open::iterator sequence) {
  const auto [from, to] = by_room_.equal_range(length_ - sequence->size());
  const auto it = std::find_if(from, to, [&](const auto& each) { return each.second == sequence; });
  STARLING_CHECK(it != to);
  by_room_.erase(it);
}

Result<> Packer::end(Open::iterator sequence) {
  forget(sequence);
  filling_ += length_ - sequence->size();
  sequence->resize(length_, fill_);
  const Sequence whole = std::move(*sequence);
  open_.erase(sequence);
  return take_(whole);
}

Result<> Packer::finish() {
  while (!open_.empty()) {
    STARLING_TRY(end(open_.begin()));
  }
  return ok();
}

}  // namespace starling
