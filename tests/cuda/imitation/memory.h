#pragma once
// Which memory is the device's, and which is pinned.

#include <cstddef>

namespace starling::imitation {

enum class Kind { kPageable, kPinned, kDevice };
struct Place {
  Kind kind = Kind::kPageable;
  bool whole = true;  // all of the asked bytes lie in one piece of memory
};
Place place_of(const void* at, std::size_t bytes);
// Whether so many bytes more could be mapped.
bool has_room(std::size_t bytes);
// Notes memory of the device that the driver has mapped, and forgets it.
void note_mapped(const void* at, std::size_t bytes);
void forget_mapped(const void* at);

}  // namespace starling::imitation
