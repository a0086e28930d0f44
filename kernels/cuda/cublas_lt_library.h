#pragma once
// CublasLtLibrary is cuBLASLt as this program sees it: the part of its binary interface that is
// used, and how the library is found. Nothing of it is linked, so that a program without it starts,
// and no header is needed. Where there is one, tests/cuda/cublas_lt_abi.cpp compares the two.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::kernels::cuda {

// Names are those of cublasLt.h, in our style. Enumerators are ints, as in the binary interface.
namespace lt {

using Handle = struct Context*;
using Description = struct DescriptionBytes*;  // cublasLtMatmulDesc_t
using Layout = struct LayoutBytes*;
using Preference = struct PreferenceBytes*;

// An Algorithm may be kept and used again with the same version of the library.
struct Algorithm {
  std::uint64_t data[8];
};
struct Candidate {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

inline constexpr int kSuccess = 0, kInvalidValue = 7, kNotSupported = 15;
inline constexpr int kF32 = 0, kF16 = 2, kBf16 = 14;  // cudaDataType
inline constexpr int kComputeF32 = 68;
inline constexpr int kAsIs = 0, kTransposed = 1;
// These are attributes of a description.
inline constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8,
                     kAuxPointer = 11, kAuxLd = 12;
inline constexpr std::uint32_t kNoEpilogue = 1, kRelu = 2, kBias = 4, kReluBias = 6, kGeluAux = 160,
                               kGeluAuxBias = 164, kGeluBackward = 192;
// These are attributes of a preference.
inline constexpr int kWorkspaceMax = 1, kReductionMask = 3, kAlignA = 5, kAlignB = 6, kAlignC = 7,
                     kAlignD = 8;
// These are attributes of an algorithm.
inline constexpr int kAlgorithmId = 0, kSplitK = 2, kReduction = 3;
// Parts of k are sums of their own, in fp32 in the workspace, which a second step adds.
inline constexpr std::uint32_t kReduceComputed = 2;

struct Functions {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  std::size_t (*version)();
  const char* (*status_text)(int);
  int (*create_description)(Description*, int compute, int scale);
  int (*destroy_description)(Description);
  int (*set_description)(Description, int attribute, const void*, std::size_t);
  int (*create_layout)(Layout*, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t ld);
  int (*destroy_layout)(Layout);
  int (*create_preference)(Preference*);
  int (*destroy_preference)(Preference);
  int (*set_preference)(Preference, int attribute, const void*, std::size_t);
  int (*candidates)(Handle, Description, Layout a, Layout b, Layout c, Layout d, Preference,
                    int wanted, Candidate*, int* got);
  int (*check)(Handle, Description, Layout a, Layout b, Layout c, Layout d, const Algorithm*,
               Candidate*);
  int (*attribute)(const Algorithm*, int attribute, void*, std::size_t, std::size_t* written);
  int (*multiply)(Handle, Description, const void* alpha, const void* a, Layout, const void* b,
                  Layout, const void* beta, const void* c, Layout, void* d, Layout,
                  const Algorithm*, void* workspace, std::size_t, void* stream);
};

}  // namespace lt

// An open CublasLtLibrary stays in the process: a second opening costs nothing.
struct CublasLtLibrary {
  std::filesystem::path path;  // as it was opened
  std::size_t version = 0;     // 130100 is 13.1.0
  lt::Functions functions{};
};

// Lists where the library is looked for, in this order: STARLING_CUBLASLT alone if that is set;
// beside this program's part and one folder up; where the system finds it; in Python's packages,
// below the folders of STARLING_PYTHON_LIBS (with ':' between them) and of $VIRTUAL_ENV.
std::vector<std::filesystem::path> cublas_lt_places();
// Errors: kUnavailable  no place has the library, or the one found cannot be used
Result<std::shared_ptr<const CublasLtLibrary>> open_cublas_lt();

}  // namespace starling::kernels::cuda
