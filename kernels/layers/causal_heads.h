#pragma once
// Causal attention of all heads.

#include <cstddef>
#include <vector>

#include "kernels/layers/layer.h"

namespace starling::kernels {

// Matrices of queries, [rows, heads * head_width], and of keys and values, [rows, key_value_heads * head_width]. Rows
// lie a stride of floats apart: they may be parts of longer ones.
template <class Float>
struct HeadRows {
  Float* queries = nullptr;
  Float* keys = nullptr;
  Float* values = nullptr;
  std::size_t query_stride = 0, key_value_stride = 0;
};

// softmax(q k^T / sqrt(head_width)) v of each head. Heads of queries share those of keys and values: head h has
// number h / (heads / key_value_heads) of these (Ainslie et al., 2023, "GQA"). With a window a row sees so many rows,
// its own included (Beltagy et al., 2020, "Longformer"), and only products of such are computed, in bands.
struct CausalHeads {
  std::size_t context = 0, heads = 0, key_value_heads = 0, head_width = 0;
  std::size_t window = 0;  // 0: all before it

  std::size_t query_width() const { return heads * head_width; }
  std::size_t key_value_width() const { return key_value_heads * head_width; }
  std::size_t probabilities(std::size_t sequences) const {
    return sequences * heads * context * context;
  }
  std::size_t scratch() const { return context * context; }

  // probabilities: kept for the backward pass; attended: [rows, query_width()].
  void forward(const Pass& pass, const HeadRows<const float>& rows, float* probabilities,
               float* attended) const;
  // Writes d_rows; scratch: floats of scratch().
  void backward(const Pass& pass, const HeadRows<const float>& rows, const float* probabilities,
                const float* d_attended, const HeadRows<float>& d_rows, float* scratch) const;

 private:
  // Rows of scores that are computed together, and the columns that one of them sees.
  struct Band {
    std::size_t first_row = 0, rows = 0, first_column = 0, columns = 0;
  };
  bool windowed() const { return window != 0 && window < context; }
  std::vector<Band> bands() const;
  float scale() const;
  void band_forward(const Pass& pass, const HeadRows<const float>& head, const Band& band,
                    float* probabilities, float* attended) const;
  // adds: to the gradients of keys and values that are there.
  void band_backward(const Pass& pass, const HeadRows<const float>& head, const Band& band,
                     const float* probabilities, const float* d_attended,
                     const HeadRows<float>& d_head, float* d_scores, bool adds) const;
};

}  // namespace starling::kernels
