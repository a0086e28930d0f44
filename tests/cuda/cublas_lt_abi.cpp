// Compiled where NVIDIA's header is: what we say of cuBLASLt's binary interface is what it says.
#include <cublasLt.h>

#include <type_traits>

#include "kernels/cuda/cublas_lt_library.h"

namespace starling::kernels::cuda::lt {
namespace {

static_assert(CUBLAS_VER_MAJOR == 13);

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Candidate) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Candidate, workspace) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Candidate, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(Candidate, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
static_assert(kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(kF32 == CUDA_R_32F);
static_assert(kF16 == CUDA_R_16F);
static_assert(lt::kBf16 == CUDA_R_16BF);
static_assert(kComputeF32 == CUBLAS_COMPUTE_32F);
static_assert(kAsIs == CUBLAS_OP_N);
static_assert(kTransposed == CUBLAS_OP_T);

static_assert(kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(kEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(kBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(kAuxPointer == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
static_assert(kAuxLd == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
static_assert(kNoEpilogue == CUBLASLT_EPILOGUE_DEFAULT);
static_assert(kRelu == CUBLASLT_EPILOGUE_RELU);
static_assert(kBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(kReluBias == CUBLASLT_EPILOGUE_RELU_BIAS);
static_assert(kGeluAux == CUBLASLT_EPILOGUE_GELU_AUX);
static_assert(kGeluAuxBias == CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
static_assert(kGeluBackward == CUBLASLT_EPILOGUE_DGELU);

static_assert(kWorkspaceMax == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kReductionMask == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(CUBLASLT_REDUCTION_SCHEME_NONE == 0);
static_assert(kAlignA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kAlignB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kAlignC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kAlignD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

static_assert(kAlgorithmId == CUBLASLT_ALGO_CONFIG_ID);
static_assert(kSplitK == CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
static_assert(kReduction == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
static_assert(kReduceComputed == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

// Whether two types are passed and returned alike: enumerators are ints, opaque types are pointers.
template <class Ours, class Theirs>
constexpr bool kAlike = std::is_same_v<Ours, Theirs> ||
                        (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) ||
                        (std::is_integral_v<Ours> && std::is_enum_v<Theirs> &&
                         sizeof(Ours) == sizeof(Theirs)) ||
                        (std::is_integral_v<Ours> && std::is_integral_v<Theirs> &&
                         sizeof(Ours) == sizeof(Theirs) &&
                         std::is_signed_v<Ours> == std::is_signed_v<Theirs>);
template <class Result, class... Ours, class Expected, class... Theirs>
constexpr bool alike(Result (*)(Ours...), Expected (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs))
    return kAlike<Result, Expected> && (kAlike<Ours, Theirs> && ...);
  else
    return false;
}
constexpr Functions kNone{};
static_assert(alike(kNone.create, cublasLtCreate));
static_assert(alike(kNone.destroy, cublasLtDestroy));
static_assert(alike(kNone.version, cublasLtGetVersion));
static_assert(alike(kNone.status_text, cublasLtGetStatusString));
static_assert(alike(kNone.create_description, cublasLtMatmulDescCreate));
static_assert(alike(kNone.destroy_description, cublasLtMatmulDescDestroy));
static_assert(alike(kNone.set_description, cublasLtMatmulDescSetAttribute));
static_assert(alike(kNone.create_layout, cublasLtMatrixLayoutCreate));
static_assert(alike(kNone.destroy_layout, cublasLtMatrixLayoutDestroy));
static_assert(alike(kNone.create_preference, cublasLtMatmulPreferenceCreate));
static_assert(alike(kNone.destroy_preference, cublasLtMatmulPreferenceDestroy));
static_assert(alike(kNone.set_preference, cublasLtMatmulPreferenceSetAttribute));
static_assert(alike(kNone.candidates, cublasLtMatmulAlgoGetHeuristic));
static_assert(alike(kNone.check, cublasLtMatmulAlgoCheck));
static_assert(alike(kNone.attribute, cublasLtMatmulAlgoConfigGetAttribute));
static_assert(alike(kNone.multiply, cublasLtMatmul));

}  // namespace
}  // namespace starling::kernels::cuda::lt
