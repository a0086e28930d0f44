#include "actors/gateway/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace starling::actors {

namespace {

struct Head {
  static constexpr std::uint32_t kMagic = 0x31507453;  // "StP1"
  std::uint32_t magic = kMagic;
  std::uint32_t place = 0;
  std::uint64_t total = 0;
};
static_assert(sizeof(Head) == 16);

}  // namespace

std::size_t pieces_of(ByteView message) {
  return std::max<std::size_t>(1, (message.size() + kPieceBytes - 1) / kPieceBytes);
}

Bytes piece_of(ByteView message, std::size_t n) {
  const std::size_t count = pieces_of(message);
  STARLING_CHECK(n < count);
  if (count == 1) return {message.begin(), message.end()};
  const std::size_t at = n * kPieceBytes;
  const ByteView part = message.subspan(at, std::min(kPieceBytes, message.size() - at));
  Head head;
  head.place = static_cast<std::uint32_t>(n);
  head.total = message.size();
  ByteWriter out(sizeof head + part.size());
  out.put(head);
  out.put_bytes(part);
  return std::move(out).take();
}

Pieces::Taken Pieces::take(const std::string& connection, const std::string& key, ByteView frame) {
  Head head;
  if (frame.size() < sizeof head) return {Outcome::kWhole, frame};
  std::memcpy(&head, frame.data(), sizeof head);
  if (head.magic != Head::kMagic) return {Outcome::kWhole, frame};
  const ByteView part = frame.subspan(sizeof head);
  if (head.place == 0) forget(connection);
  if (head.total > limits_.message_bytes) return {Outcome::kOversize, {}};

  auto place = unfinished_.find(connection);
  if (place == unfinished_.end() && head.place == 0)
    place = unfinished_.try_emplace(connection, Unfinished{key, head.total, 0, {}, 0}).first;
  if (place == unfinished_.end()) return {Outcome::kMisplaced, {}};
  Unfinished& known = place->second;
  const std::size_t left = known.total - known.bytes.size();
  if (known.key != key || known.total != head.total || known.next != head.place ||
      part.size() != std::min(left, kPieceBytes)) {
    drop(place);
    return {Outcome::kMisplaced, {}};
  }
  make_room(key, part.size(), connection);
  known.bytes.insert(known.bytes.end(), part.begin(), part.end());
  known.counted += part.size();
  known.heard = ++clock_;
  ++known.next;
  bytes_ += part.size();
  bytes_of_[key] += part.size();
  if (known.bytes.size() < known.total) return {Outcome::kMore, {}};
  whole_.swap(known.bytes);
  drop(place);
  return {Outcome::kWhole, whole_};
}

void Pieces::forget(const std::string& connection) {
  if (const auto place = unfinished_.find(connection); place != unfinished_.end()) drop(place);
}

void Pieces::drop(Place place) {
  const std::size_t bytes = place->second.counted;
  bytes_ -= bytes;
  const auto of_key = bytes_of_.find(place->second.key);
  if (of_key != bytes_of_.end() && (of_key->second -= bytes) == 0) bytes_of_.erase(of_key);
  unfinished_.erase(place);
}

void Pieces::make_room(const std::string& key, std::size_t bytes, const std::string& except) {
  const auto drop_oldest = [&](bool of_key) {
    auto oldest = unfinished_.end();
    for (auto it = unfinished_.begin(); it != unfinished_.end(); ++it)
      if (it->first != except && (!of_key || it->second.key == key) &&
          (oldest == unfinished_.end() || it->second.heard < oldest->second.heard))
        oldest = it;
    if (oldest == unfinished_.end()) return false;
    drop(oldest);
    return true;
  };
  const auto of_key = [&] {
    const auto found = bytes_of_.find(key);
    return found == bytes_of_.end() ? 0 : found->second;
  };
  while (of_key() + bytes > limits_.key_bytes && drop_oldest(true)) {
  }
  while (bytes_ + bytes > limits_.all_bytes && drop_oldest(false)) {
  }
}

}  // namespace starling::actors
