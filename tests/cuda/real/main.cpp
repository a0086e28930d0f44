// The tests of a GPU's plugin on a GPU; exit code 77 where there is none.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "kernels/cuda/facts.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  if (const auto gpu = starling::kernels::cuda::usable_gpu(0); !gpu) {
    std::printf("skipped: %s\n", gpu.error().text().c_str());
    return kSkipped;
  }
  return doctest::Context(argc, argv).run();
}
