#pragma once
// Coordinators tell at which addresses they are reached (Seats); here is what that means for those
// who dial them.

#include <string>
#include <vector>

#include "actors/gateway/gateway.h"
#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling::actors {

// Returns the address of a server in the form in which addresses are compared. Errors: kBadInput
// it is not "tcp://host:port" at which somebody is reached.
Result<std::string> address_to_dial(const std::string& address);

// Puts the addresses of seats into the servers at their places. A place that is not there, and an
// address that address_to_dial() refuses, are passed over.
void take_seats(const Seats& seats, std::vector<GatewayOptions::Server>& servers);

}  // namespace starling::actors
