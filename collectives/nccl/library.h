#pragma once
// Finds NCCL and makes transports of it.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/device_transport.h"
#include "core/base/result.h"

namespace starling::collectives {

struct NcclOptions {
  // Called, on a thread of its own, when a communicator does not end in time, with the reason and
  // this process's rank in its epoch; may block. The communicator stays as it is until the process
  // ends, and the library is closed(). May be empty.
  std::function<void(const std::string& why, Rank self)> on_stuck;
  // Called, on a thread of its own, for each communicator that is gone, with what its revoke (0 if it
  // never stood) and its abort took. May be empty.
  std::function<void(std::chrono::nanoseconds revoke, std::chrono::nanoseconds abort)> on_end;
};

// The places where open_nccl() looks, in this order: STARLING_NCCL alone if that is set; ../lib of
// this program; the system's places; Python's packages (core/base/libraries.h).
std::vector<std::filesystem::path> nccl_places();

// Opens NCCL, which stays in the process: a second opening costs nothing. Needs no GPU; transports
// do. Sets NCCL_NVLS_ENABLE and NCCL_RAS_ENABLE to 0 and NCCL_PXN_DISABLE to 1 where they are not
// set, so call it before other threads read the environment. With STARLING_NCCL_SHARED_GPU=1 each
// process is a host of its own to NCCL, so that several of one machine may share a GPU, slowly: for
// tests. Of its transports one is in use and another one is being made, at most.
// Errors: kUnavailable  it is at none of these places, or that one cannot be used
//         kBadInput     the environment sets what makes transports wrong: NCCL_COMM_ID, with which all
//                       communicators would be one; NCCL_CUMEM_ENABLE=0 or NCCL_CUMEM_HOST_ENABLE=0,
//                       with which a rank that ends frees memory that peers still use
Result<std::shared_ptr<TransportLibrary>> open_nccl(NcclOptions options = {});

}  // namespace starling::collectives
