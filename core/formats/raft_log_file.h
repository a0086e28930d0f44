#pragma once
// The real file below a Raft log. Apart from the log so that the log can be tested without a disk.

#include <chrono>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/formats/raft_log.h"

namespace starling {

// DIR/raft.log, locked. A new one is empty, and its name and that of DIR are durable on return.
// A lock that another process has is waited for, as long as `patience`.
Result<std::unique_ptr<RaftLogFile>> open_raft_log_file(const std::string& dir,
                                                        std::chrono::milliseconds patience);

}  // namespace starling
