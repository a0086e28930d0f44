#pragma once
// Before a server serves it dials itself: whoever is on the allow list must get in and nobody else,
// or the process does not start. A library that was built or configured otherwise is found here and
// not by an intruder.

#include "actors/gateway/socket.h"
#include "actors/gateway/zap.h"

namespace starling::actors {

// `endpoint`: where the server listens. Blocks for one handshake each, at most 3 s. Errors:
// kInternal an unknown key was admitted, or a listed one was not.
Result<> check_admission(const Context& context, const std::string& endpoint,
                         const std::string& server_public_key, ZapHandler& zap);

}  // namespace starling::actors
