#pragma once
// Memory that can be read and written while the device works, and at no other time.

#include <cstddef>

namespace starling::imitation {

// Whether memory is hidden that is taken now. Threads: any, also of the following.
bool hides();

// At a page's boundary; null if there is none. All lies in one range of addresses.
void* take_hidden(std::size_t bytes);
void give_back_hidden(void* at, std::size_t bytes);

}  // namespace starling::imitation
