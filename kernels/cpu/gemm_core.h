// The blocked matrix product, as a template over a vector type; included by one source per
// instruction set, inside an unnamed namespace, so that no code compiled for a newer CPU can be
// merged into another file's. Needs V (a vector of V::kLanes floats) and uses no function of the
// standard library.
//
// Loops: chunks of k; blocks of rows (their part of A stays in the L2 cache); panels of 2 vectors
// of columns (packed, stay in L1); tiles of kRows rows (accumulators stay in registers).

template <class V>
struct GemmCore {
  static constexpr int kRows = V::kTileRows;  // kRows * 2 accumulators fill the registers
  static constexpr std::size_t kPanel = 2 * V::kLanes;
  static constexpr std::size_t kPackColumns = 768;

  static std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

  // What becomes of a finished tile: c = acc (+ c | + bias + add).
  struct Finish {
    float* c;
    std::size_t ldc;
    const float* bias;
    const float* add;
    std::size_t ldadd;
    bool accumulate;
  };

  // kPanel columns of B from `col`, rows [k0, k0 + kc), missing columns zero.
  static void pack_b(const Gemm& g, std::size_t k0, std::size_t kc, std::size_t col, float* out) {
    const std::size_t width = least(kPanel, g.n - col);
    if (g.b_transposed) {
      for (std::size_t j = 0; j < kPanel; j += V::kLanes)
        V::pack_transposed(g.b + (col + j) * g.ldb + k0, g.ldb, j < width ? width - j : 0, kc,
                           out + j, kPanel);
      return;
    }
    const float* src = g.b + k0 * g.ldb + col;
    if (width == kPanel) {
      for (std::size_t k = 0; k < kc; ++k, src += g.ldb, out += kPanel) {
        V::load(src).store(out);
        V::load(src + V::kLanes).store(out + V::kLanes);
      }
      return;
    }
    for (std::size_t k = 0; k < kc; ++k, src += g.ldb, out += kPanel)
      for (std::size_t j = 0; j < kPanel; ++j) out[j] = j < width ? src[j] : 0.0f;
  }

  // Rows [row, row + count) of A as tiles: out[tile][k][kRows], missing rows zero.
  static void pack_a(const Gemm& g, std::size_t k0, std::size_t kc, std::size_t row,
                     std::size_t count, float* out) {
    const std::size_t row_step = g.a_transposed ? 1 : g.lda, k_step = g.a_transposed ? g.lda : 1;
    for (std::size_t i = 0; i < count; i += kRows) {
      const std::size_t rows = least(kRows, count - i);
      const float* src = g.a + k0 * k_step + (row + i) * row_step;
      for (std::size_t k = 0; k < kc; ++k, src += k_step, out += kRows) {
        if (g.a_transposed && rows == kRows) {
          __builtin_memcpy(out, src, kRows * sizeof(float));
          continue;
        }
        for (std::size_t r = 0; r < kRows; ++r) out[r] = r < rows ? src[r * row_step] : 0.0f;
      }
    }
  }

  static void finish_vector(V acc, const Finish& f, std::size_t r, std::size_t j) {
    float* c = f.c + r * f.ldc + j;
    if (f.accumulate) acc = acc + V::load(c);
    if (f.bias) acc = acc + V::load(f.bias + j);
    if (f.add) acc = acc + V::load(f.add + r * f.ldadd + j);
    acc.store(c);
  }

  static void finish_partial(V acc, const Finish& f, std::size_t r, std::size_t j,
                             std::size_t width) {
    float lanes[V::kLanes];
    acc.store(lanes);
    for (std::size_t l = 0; l < V::kLanes && j + l < width; ++l) {
      float x = lanes[l];
      if (f.accumulate) x += f.c[r * f.ldc + j + l];
      if (f.bias) x += f.bias[j + l];
      if (f.add) x += f.add[r * f.ldadd + j + l];
      f.c[r * f.ldc + j + l] = x;
    }
  }

  // a[r * row_step + k * k_step]; b packed.
  template <int Rows>
  static void tile(std::size_t kc, const float* a, std::size_t row_step, std::size_t k_step,
                   const float* b, const Finish& f, std::size_t width) {
    V acc[Rows][2];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) acc[r][0] = acc[r][1] = V::zero();
    for (std::size_t k = 0; k < kc; ++k) {
      const V b0 = V::load(b), b1 = V::load(b + V::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const V x = V::broadcast(a + static_cast<std::size_t>(r) * row_step);
        acc[r][0] = V::fma(x, b0, acc[r][0]);
        acc[r][1] = V::fma(x, b1, acc[r][1]);
      }
      a += k_step;
      b += kPanel;
    }
    if (width == kPanel && !f.accumulate && !f.bias && !f.add) {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        float* const c = f.c + static_cast<std::size_t>(r) * f.ldc;
        acc[r][0].store(c);
        acc[r][1].store(c + V::kLanes);
      }
      return;
    }
    if (width == kPanel) {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        finish_vector(acc[r][0], f, r, 0);
        finish_vector(acc[r][1], f, r, V::kLanes);
      }
      return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      finish_partial(acc[r][0], f, r, 0, width);
      finish_partial(acc[r][1], f, r, V::kLanes, width);
    }
  }

  template <int Rows>
  static void tile_of(std::size_t rows, std::size_t kc, const float* a, std::size_t row_step,
                      std::size_t k_step, const float* b, const Finish& f, std::size_t width) {
    if constexpr (Rows > 1) {
      if (rows < Rows) return tile_of<Rows - 1>(rows, kc, a, row_step, k_step, b, f, width);
    }
    tile<Rows>(kc, a, row_step, k_step, b, f, width);
  }

  // One panel against rows [row, row + count) of one chunk.
  static void panel(const Gemm& g, std::size_t k0, std::size_t kc, std::size_t row,
                    std::size_t count, const float* packed_a, std::size_t col, const float* b) {
    const std::size_t width = least(kPanel, g.n - col);
    for (std::size_t i = 0; i < count; i += kRows) {
      const std::size_t first = row + i, rows = least(kRows, count - i), last = first + rows;
      if (g.trim == Trim::kLowerC && col >= last) continue;
      std::size_t from = 0, to = kc;  // within the chunk
      if (g.trim == Trim::kLowerA) to = last <= k0 ? 0 : least(kc, last - k0);
      if (g.trim == Trim::kUpperA) from = first <= k0 ? 0 : least(kc, first - k0);
      const bool whole = k0 + kc == g.k;
      Finish f{g.c + first * g.ldc + col, g.ldc, nullptr, nullptr, g.ldadd, k0 > 0};
      if (whole && g.bias) f.bias = g.bias + col;
      if (whole && g.add) f.add = g.add + first * g.ldadd + col;
      const float* a =
          packed_a ? packed_a + i * kc + from * kRows : g.a + first * g.lda + k0 + from;
      tile_of<kRows>(rows, to > from ? to - from : 0, a, packed_a ? 1 : g.lda, packed_a ? kRows : 1,
                     b + from * kPanel, f, width);
    }
  }

  static void run(const Gemm& g) {
    constexpr std::size_t kBlockRows = kGemmPackedA / kRows * kRows;
    float* const packed_b = g.scratch;
    float* const a_space = g.scratch + kGemmChunk * kGemmPackedB;
    // A whole chunk of B is packed once if it fits; else each panel anew for every block of rows.
    // Rows of A may be read where they are. If they are read often it pays to have them side by
    // side: they no longer compete for the same sets of the cache, or for entries of the TLB.
    const bool pack = g.a_transposed || (g.n >= kPackColumns && g.trim == Trim::kNone);
    const bool keep_b = (g.n + kPanel - 1) / kPanel * kPanel <= kGemmPackedB;
    for (std::size_t k0 = 0; k0 < g.k; k0 += kGemmChunk) {
      const std::size_t kc = least(kGemmChunk, g.k - k0);
      for (std::size_t row = 0; row < g.m; row += kBlockRows) {
        const std::size_t count = least(kBlockRows, g.m - row);
        if (pack) pack_a(g, k0, kc, row, count, a_space);
        for (std::size_t col = 0; col < g.n; col += kPanel) {
          float* const b = keep_b ? packed_b + col * kc : packed_b;
          if (!keep_b || row == 0) pack_b(g, k0, kc, col, b);
          panel(g, k0, kc, row, count, pack ? a_space : nullptr, col, b);
        }
      }
    }
  }
};
