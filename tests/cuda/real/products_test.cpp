// On a real GPU: cuBLASLt's products, where that library is, against plain loops.

#include <doctest/doctest.h>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/gpu.h"
#include "tests/cuda/products_rig.h"

namespace starling::kernels::cuda {

TEST_CASE("cuBLASLt's products are those of plain loops, twice the same") {
  const auto gpu = Gpu::open({});
  REQUIRE(gpu);
  const auto products = cublas_lt_products(gpu.value()->name());
  if (!products) {
    MESSAGE("not shown: " << products.error().text());
    return;
  }
  MESSAGE(products.value()->describe());
  for (const auto& cases : {awkward_products(), followed_products()})
    for (const ProductCase& c : cases) check_product(*products.value(), c, /*twice=*/true);
}

}  // namespace starling::kernels::cuda
