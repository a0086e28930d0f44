#pragma once
// The part of NCCL's binary interface that this program uses. The program is not linked to NCCL, so
// it starts without it, and needs no header of it. Where a header is installed, tests/nccl/abi.cpp
// compares the two.

#include <climits>
#include <cstddef>

// Names are nccl.h's, in our style. Enumerators are ints, as they are for the machine.
namespace starling::collectives::nccl::abi {

using Comm = struct CommBytes*;

inline constexpr int kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInternalError = 3,
                     kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;
inline constexpr int kInt8 = 0;  // ncclDataType_t

inline constexpr std::size_t kIdBytes = 128;
struct UniqueId {
  char internal[kIdBytes];
};

inline constexpr int kUndefined = INT_MIN;
// A newer library accepts an older Config, and an older one ignores the fields that it lacks.
struct Config {  // of 2.28
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 22809;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric = kUndefined;
};

// Functions left out on purpose: ncclCommFinalize and ncclCommDestroy, which wait for peers that
// may be dead; ncclCommShrink, which renumbers ranks, and repeats ids in 2.28.
struct Functions {
  int (*version)(int*);
  int (*unique_id)(UniqueId*);
  const char* (*error_text)(int);
  const char* (*last_error)(Comm);  // the process's last one, with details
  int (*init)(Comm*, int world, UniqueId, int rank, Config*);
  int (*async_error)(Comm, int*);
  int (*abort)(Comm);
  int (*revoke)(Comm, int flags);  // since 2.28.7
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void*, std::size_t count, int type, int peer, Comm, void* stream);
  int (*recv)(void*, std::size_t count, int type, int peer, Comm, void* stream);
};

}  // namespace starling::collectives::nccl::abi
