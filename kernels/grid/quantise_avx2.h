#pragma once
// This is the AVX2 form of the grid's inner loops. Its source is compiled with -mavx2 and must not
// use inline functions of other headers: the linker could take its copy for the whole program.

namespace starling::kernels {

struct BlockKernels;

// Returns null if not compiled in or this CPU has no AVX2.
const BlockKernels* avx2_block_kernels();

}  // namespace starling::kernels
