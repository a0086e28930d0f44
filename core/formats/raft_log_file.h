#pragma once
// The real file below a Raft log. Apart from the log so that the log can be tested without a disk.

#include <chrono>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/formats/raft_log.h"

namespace starling {

// Opens DIR/raft.log, locked. A new one is empty, and its name and that of DIR are durable on
// return. Waits as long as `patience` for a lock that another process has.
Result<std::unique_ptr<RaftLogFile>> open_raft_log_file(const std::string& dir,
                                                        std::chrono::milliseconds patience);

}  // namespace starling
