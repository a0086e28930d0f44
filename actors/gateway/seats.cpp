#include "actors/gateway/seats.h"

#include <utility>

#include "core/base/address.h"

namespace starling::actors {

Result<std::string> address_to_dial(const std::string& address) {
  STARLING_TRY(at, parse_address(address));
  if (address.rfind(kTcpScheme, 0) != 0 || at.port == 0 || means_everywhere(at.host))
    return Error(Code::kBadInput, "expected tcp://host:port at which a server is reached, got \"" +
                                      address.substr(0, 300) + "\"");
  return kTcpScheme + to_string(at);
}

void take_seats(const Seats& seats, std::vector<GatewayOptions::Server>& servers) {
  for (const Seat& seat : seats.seats) {
    if (seat.place >= servers.size()) continue;
    if (auto address = address_to_dial(seat.address))
      servers[seat.place].address = std::move(address).value();
  }
}

}  // namespace starling::actors
