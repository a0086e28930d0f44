#pragma once
// Products computes matrix products of a device: by cuBLASLt, or by our own
// kernels where there is no such library and for what it does not have.

#include <cuda_runtime.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/base/result.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/plans.h"

namespace starling::kernels::cuda {

// Threads: one at a time. Belongs to one stream: products use its workspace one by one.
class Products {
 public:
  virtual ~Products() = default;

  // Computes what cuda::multiply() does. The first product with a key (plans.h)
  // chooses how all of them are computed; products with a known key only ask
  // the stream, so that they can be captured. Takes no memory on the device.
  // Where c is of halves, a bias may be rounded to them and, if
  // the library lacks the epilogue, so may the result before it.
  virtual void multiply(cudaStream_t stream, const Product& product) = 0;

  // Returns the choices until now; for fingerprints, as other choices may give other bits.
  virtual PlanTable plans() const = 0;
  // Says, in one line, which library makes these products.
  virtual std::string describe() const = 0;
};

// Makes products by our own kernels alone.
std::unique_ptr<Products> own_products();

// Makes products by cuBLASLt on the current device, whose name is `device`. Without a table, a
// product takes the library's first proposal among those that repeat themselves to the bit: k is
// not split, or, of products in fp32, its parts are added by a second step. Tables win over that: the file STARLING_CUDA_PLANS, else those of plans/*.txt beside this code that fit this
// version and device. If an algorithm of a table fails, the process ends with a line that says so.
// Takes 32.5 MiB of the device. Errors: kUnavailable  no library, no device or no memory
//                                       kBadInput     a table is damaged, or the named one is for
//                                                     another version or device
Result<std::unique_ptr<Products>> cublas_lt_products(const std::string& device);

// Times the library's proposals for each of the products, which read and write the memory
// they name, and writes the fastest to a table. Of two that differ by less than a percent,
// the earlier proposal stays. Errors: as above; kUnavailable  the file cannot be written
Result<> tune(cudaStream_t stream, const std::string& device, std::span<const Product> products,
              const std::filesystem::path& to);

}  // namespace starling::kernels::cuda
