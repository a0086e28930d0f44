#pragma once
// Files that are there whole or not at all, whatever crashes.

#include <span>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling {

// Writes the pieces one after the other to a temporary file beside `path`, syncs it, renames it
// over `path` and syncs the folder: after a crash there is the old file or the whole new one. A
// failed sync is final: the kernel may have dropped the pages, so it is not tried again. Errors:
// kBadInput  the file cannot be written; nothing is left behind.
Result<> write_synced_file(const std::string& path, std::span<const ByteView> pieces);

// The same, unless there is a file already: of several calls at once, one returns true. Where the file
// system has no hard links the file is written in its place, and a reader may find a part of it.
Result<bool> write_new_synced_file(const std::string& path, ByteView data);

}  // namespace starling
