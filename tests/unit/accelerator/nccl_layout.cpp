// That what the accelerator cuda declares of NCCL is what NCCL's own header of 2.28 and newer says, where that is
// there.
#include "../../../accelerators/cuda/nccl_api.hpp"

#if __has_include(<nccl.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE >= 22800

namespace {

using pliant::cuda::NcclConfig;

static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(offsetof(NcclConfig, traffic_class) == offsetof(ncclConfig_t, trafficClass));
static_assert(offsetof(NcclConfig, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(NcclConfig, collnet_enable) == offsetof(ncclConfig_t, collnetEnable));
static_assert(offsetof(NcclConfig, cta_policy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(NcclConfig, shrink_share) == offsetof(ncclConfig_t, shrinkShare));
static_assert(offsetof(NcclConfig, nvls_ctas) == offsetof(ncclConfig_t, nvlsCTAs));
static_assert(offsetof(NcclConfig, channels_per_net_peer) == offsetof(ncclConfig_t, nChannelsPerNetPeer));
static_assert(offsetof(NcclConfig, nvlink_centric_sched) == offsetof(ncclConfig_t, nvlinkCentricSched));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(sizeof(pliant::cuda::NcclId) == sizeof(ncclUniqueId));
static_assert(NCCL_CTA_POLICY_ZERO == 2 && NCCL_WIN_COLL_SYMMETRIC == 1);
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN);
static_assert(static_cast<int>(ncclInProgress) == pliant::cuda::kNcclInProgress);

}  // namespace

#endif
#endif
