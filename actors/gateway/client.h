#pragma once
// GatewayClient says who talks to the coordinators of a job, and where they are: a worker, which
// hands it to whatever of it asks them or tells them something.

#include <optional>
#include <vector>

#include "actors/gateway/gateway.h"
#include "core/base/ids.h"
#include "core/base/keys.h"

namespace starling::actors {

struct GatewayClient {
  JobId job_id{};
  Incarnation self;  // nonce != 0, of this life
  KeyPair key;       // one of the job's ring, with its secret, or one that a token lets in
  std::optional<GatewayOptions::Enrols> enrols{};
  std::vector<GatewayOptions::Server> coordinators;
};

// Returns the options of a gateway that dials the coordinators, wherever they go.
inline GatewayOptions gateway_options(const GatewayClient& client) {
  GatewayOptions gateway;
  gateway.job = client.job_id;
  gateway.self = client.self;
  gateway.key = client.key;
  gateway.servers = client.coordinators;
  gateway.enrols = client.enrols;
  gateway.follows_seats = true;
  return gateway;
}

}  // namespace starling::actors
