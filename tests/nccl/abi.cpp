// Compiled where NVIDIA's headers are: what we say of NCCL's binary interface is what they say.
#include "collectives/nccl/abi.h"

#include <nccl.h>

#include <type_traits>

namespace starling::collectives::nccl::abi {
namespace {

static_assert(NCCL_MAJOR == 2);

static_assert(kSuccess == ncclSuccess);
static_assert(kUnhandledCudaError == ncclUnhandledCudaError);
static_assert(kSystemError == ncclSystemError);
static_assert(kInternalError == ncclInternalError);
static_assert(kInvalidArgument == ncclInvalidArgument);
static_assert(kInvalidUsage == ncclInvalidUsage);
static_assert(kRemoteError == ncclRemoteError);
static_assert(kInProgress == ncclInProgress);
static_assert(kInt8 == ncclInt8);

static_assert(kIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

// Newer headers have more fields at the end.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(kUndefined == NCCL_CONFIG_UNDEF_INT);
#define STARLING_SAME_PLACE(ours, theirs) \
  static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs))
STARLING_SAME_PLACE(size, size);
STARLING_SAME_PLACE(magic, magic);
STARLING_SAME_PLACE(version, version);
STARLING_SAME_PLACE(blocking, blocking);
STARLING_SAME_PLACE(cga_cluster_size, cgaClusterSize);
STARLING_SAME_PLACE(min_ctas, minCTAs);
STARLING_SAME_PLACE(max_ctas, maxCTAs);
STARLING_SAME_PLACE(net_name, netName);
STARLING_SAME_PLACE(split_share, splitShare);
STARLING_SAME_PLACE(traffic_class, trafficClass);
STARLING_SAME_PLACE(comm_name, commName);
STARLING_SAME_PLACE(collnet_enable, collnetEnable);
STARLING_SAME_PLACE(cta_policy, CTAPolicy);
STARLING_SAME_PLACE(shrink_share, shrinkShare);
STARLING_SAME_PLACE(nvls_ctas, nvlsCTAs);
STARLING_SAME_PLACE(channels_per_net_peer, nChannelsPerNetPeer);
STARLING_SAME_PLACE(nvlink_centric, nvlinkCentricSched);
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
static_assert(sizeof(Config) == sizeof(ncclConfig_t));
constexpr bool is_initial(const Config& c, ncclConfig_t n = NCCL_CONFIG_INITIALIZER) {
  return c.size == n.size && c.magic == n.magic && c.version == n.version;
}
static_assert(NCCL_VERSION_CODE != 22809 || is_initial({}));
#endif

// Whether two types are passed and returned alike: enumerators are ints, opaque types are pointers,
// and the id is a piece of memory of one size.
template <class Ours, class Theirs>
constexpr bool kAlike = std::is_same_v<Ours, Theirs> ||
                        (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) ||
                        (std::is_integral_v<Ours> && std::is_enum_v<Theirs> &&
                         sizeof(Ours) == sizeof(Theirs)) ||
                        (std::is_same_v<Ours, UniqueId> && std::is_same_v<Theirs, ncclUniqueId>);
template <class Result, class... Ours, class Expected, class... Theirs>
constexpr bool alike(Result (*)(Ours...), Expected (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs))
    return kAlike<Result, Expected> && (kAlike<Ours, Theirs> && ...);
  else
    return false;
}
constexpr Functions kNone{};
static_assert(alike(kNone.version, ncclGetVersion));
static_assert(alike(kNone.unique_id, ncclGetUniqueId));
static_assert(alike(kNone.error_text, ncclGetErrorString));
static_assert(alike(kNone.last_error, ncclGetLastError));
static_assert(alike(kNone.init, ncclCommInitRankConfig));
static_assert(alike(kNone.async_error, ncclCommGetAsyncError));
static_assert(alike(kNone.abort, ncclCommAbort));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
static_assert(alike(kNone.revoke, ncclCommRevoke));
#endif
static_assert(alike(kNone.group_start, ncclGroupStart));
static_assert(alike(kNone.group_end, ncclGroupEnd));
static_assert(alike(kNone.send, ncclSend));
static_assert(alike(kNone.recv, ncclRecv));

}  // namespace
}  // namespace starling::collectives::nccl::abi
