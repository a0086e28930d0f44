#include "kernels/cpu/table.h"

#include "core/base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector.h"

namespace starling::kernels {

void check(const Gemm& g) {
  STARLING_CHECK(g.a != nullptr && g.b != nullptr && g.c != nullptr);
  STARLING_CHECK(g.lda >= (g.a_transposed ? g.m : g.k));
  STARLING_CHECK(g.ldb >= (g.b_transposed ? g.k : g.n));
  STARLING_CHECK(g.ldc >= g.n);
  STARLING_CHECK(g.add == nullptr || g.ldadd >= g.n);
  STARLING_CHECK(g.add != g.c || g.ldadd == g.ldc);
  STARLING_CHECK(g.trim != Trim::kLowerC || g.m == g.n);
  STARLING_CHECK((g.trim != Trim::kLowerA && g.trim != Trim::kUpperA) || g.m == g.k);
  STARLING_CHECK(g.scratch != nullptr && reinterpret_cast<std::uintptr_t>(g.scratch) % 64 == 0);
}

const KernelTable& avx2_kernels() {
  static const KernelTable table = vector_kernels_avx2("avx2", gemm_avx2);
  return table;
}

const KernelTable& avx512_kernels() {
  static const KernelTable table = vector_kernels_avx2("avx512", gemm_avx512);
  return table;
}

bool cpu_has(const std::string& isa) {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == "reference") return true;
  if (isa == "avx2") return avx2;
  if (isa == "avx512") return avx2 && __builtin_cpu_supports("avx512f");
  return false;
}

Result<const KernelTable*> kernel_table(const std::string& isa) {
  // The host computes for a device what that does not compute itself (kernels/device/device.h).
  if (isa == "auto" || isa == "emulated" || isa == "cuda")
    return kernel_table(cpu_has("avx512") ? "avx512" : cpu_has("avx2") ? "avx2" : "reference");
  if (isa != "reference" && isa != "avx2" && isa != "avx512")
    return Error(Code::kBadInput,
                 "isa is \"" + isa + "\"; expected auto, reference, avx2, avx512 or cuda");
  if (!cpu_has(isa))
    return Error(Code::kBadInput, "this CPU lacks the instruction set " + isa + "; it has " +
                                      (cpu_has("avx2") ? "avx2 and reference" : "reference only"));
  if (isa == "avx512") return &avx512_kernels();
  return isa == "avx2" ? &avx2_kernels() : &reference_kernels();
}

}  // namespace starling::kernels
