#pragma once
// What a changed list of keys means for people.

#include <string>

#include "core/base/keys.h"

namespace starling::actors {

// Returns "keys: worker-3 revoked, worker-9 let in"; empty: the lists are the same.
std::string changes_of(const AllowList& before, const AllowList& after);

}  // namespace starling::actors
