#pragma once
// split_keys() writes the keys of a job for many machines.

#include <cstdint>
#include <string>

#include "core/base/keys.h"
#include "core/base/result.h"

namespace starling::tools {

inline constexpr const char* kPublicJoin = "join.public";  // in a folder of split keys

// Makes a folder with a file for each process of the ring, and, where the addresses of the
// coordinators are given, the join tokens of worker-0.. and the public one. Errors: kBadInput  the addresses of
// all founders are expected; the folder is there; the ring has not so many workers' secrets.
Result<> split_keys(const KeyRing& ring, const std::string& folder, std::uint32_t workers,
                    const std::string& at);

}  // namespace starling::tools
