#pragma once
// The directory of a zip archive whose members are stored, not compressed: where in it their bytes lie.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/storage.h"

namespace starling {

struct ZipMember {
  std::string name;
  std::uint64_t offset = 0, bytes = 0;  // of its data in the archive
};

// All members, as the directory at the end has them, also beyond 4 GiB (zip64). Their checksums are not computed:
// weights are read in pieces, and torch may leave checksums out.
// Errors: kBadInput  no zip archive, a member that is compressed or encrypted or lies outside of the archive, one
// name twice, or a directory of more than 2^26 bytes.
Result<std::vector<ZipMember>> stored_members(const StoredObject& archive);

}  // namespace starling
