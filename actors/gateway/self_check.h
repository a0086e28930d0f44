#pragma once
// A server dials itself before it serves: a listed key must get in and an
// unknown one must not, or the process does not start. This finds a
// library that was built or configured otherwise before an intruder does.

#include "actors/gateway/socket.h"
#include "actors/gateway/zap.h"

namespace starling::actors {

// Checks the server that listens at `endpoint`. Blocks for one handshake each, at
// most 3 s. Errors: kInternal an unknown key was admitted, or a listed one was not.
Result<> check_admission(const Context& context, const std::string& endpoint,
                         const std::string& server_public_key, ZapHandler& zap);

}  // namespace starling::actors
