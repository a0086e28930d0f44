#pragma once
// What the stand-in for NCCL (fake_nccl.cpp) has besides NCCL's own functions, found by dlsym().

#include <cstdint>

struct FakeNcclCounts {
  std::int64_t communicators, threads, roots;          // that there are now
  std::int64_t begun, groups, hung, revoked, aborted;  // since the last orders
};

extern "C" {
// Orders from now on, in place of those of FAKE_NCCL; everything is counted anew.
void fake_nccl_orders(const char* text);
void fake_nccl_counts(FakeNcclCounts* counts);
}
