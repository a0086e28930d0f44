#include "kernels/cuda/language.h"

#include <algorithm>
#include <optional>

#include "kernels/layers/layer.h"

namespace starling::kernels::cuda {
namespace {

std::vector<PartId> parts_of(const std::vector<kernels::Rows>& runs) {
  std::vector<PartId> parts;
  for (const kernels::Rows& run : runs) parts.push_back(run.part);
  return parts;
}

class DeviceEmbedding : public DeviceLayer {
 public:
  DeviceEmbedding(const Embedding::Shape& shape, const Tensors& tensors)
      : shape_(shape), tokens_(tensors.named(shape.tokens)), runs_(trained_rows(tensors, tokens_)) {
    if (!shape.positions) return;
    positions_ = tensors.named(*shape.positions);
    positions_part_ = tensors.part_of({*positions_});
  }

  std::size_t width() const override { return shape_.width; }
  std::size_t saved(const Pass&) const override { return 0; }
  std::size_t scratch(const Pass&) const override { return 0; }
  std::vector<PartId> parts() const override {
    std::vector<PartId> parts = parts_of(runs_);
    if (positions_part_) parts.push_back(*positions_part_);
    return parts;
  }
  // Gives the table, of a tied one the second use, whose first is the head's; then the positions.
  std::vector<Use> pieces() const override {
    std::vector<Use> uses;
    for (const kernels::Rows& run : runs_) uses.push_back({run.part, shape_.tied ? 1u : 0u});
    if (positions_part_) uses.push_back({*positions_part_, /*use=*/0});
    return uses;
  }

  void forward(const Pass& pass, const void*, void* out, void*) const override {
    const bool kept = is_frozen(tokens_);  // all of it, or nothing
    const auto table = [&](std::size_t tensor) {
      return kept ? pass.matrix(tensor) : static_cast<const void*>(pass.vector(tensor));
    };
    embed(pass.stream, pass.type, {pass.rows, wide()}, context(), pass.tokens,
          kept ? pass.type : Precision::kFp32, table(tokens_),
          positions_ ? table(*positions_) : nullptr, out);
  }
  void backward(const Pass& pass, std::size_t piece, const void*, void*, const void* d_out,
                void*) const override {
    if (is_frozen(tokens_)) return;
    if (piece == runs_.size())
      return position_gradient(pass.stream, pass.type, pass.sequences, context(), wide(), d_out,
                               pass.d_parameter(*positions_));
    const kernels::Rows& run = runs_[piece];
    embed_backward(pass.stream, pass.type, wide(), pass.token_rows,
                   static_cast<std::uint32_t>(run.first), static_cast<std::uint32_t>(run.count),
                   d_out, pass.gradient);
  }

 private:
  std::uint32_t wide() const { return static_cast<std::uint32_t>(shape_.width); }
  std::uint32_t context() const { return static_cast<std::uint32_t>(shape_.context); }

  const Embedding::Shape shape_;
  const std::size_t tokens_;  // tensors
  std::optional<std::size_t> positions_;
  const std::vector<kernels::Rows> runs_;  // of tokens_, where it is trained
  std::optional<PartId> positions_part_;
};

// Computes the mean cross entropy of norm(x) table^T. The table's rows lie one after the other
// in any cut into parts, so all logits are one product; its gradient is given part by part.
//
// Products take whole 128 bytes of a row of logits: the rows behind the table, which are other
// parameters, serve as columns of logits that nothing reads and whose gradients are zeros.
class DeviceHead : public DeviceLayer {
 public:
  DeviceHead(const DeviceHeadShape& shape, const Tensors& tensors)
      : vocabulary_(shape.vocabulary),
        norm_(shape.norm),
        table_(tensors.named(shape.table)),
        reads_table_(!shape.tied),
        columns_(columns(shape, tensors, table_)),
        rows_max_(static_cast<std::uint32_t>(tensors.layout.largest_part() / norm_.width)),
        runs_(trained_rows(tensors, table_)),
        norm_part_(tensors.part_of({norm_.gain})) {}

  std::size_t width() const override { return 0; }
  std::size_t saved(const Pass& pass) const override {
    Carver carver(nullptr);
    take_saved(pass, carver);
    return carver.used();
  }
  std::size_t scratch(const Pass& pass) const override { return pass.row_bytes(norm_.width); }
  // The table of a tied embedding was read before.
  std::vector<PartId> parts() const override {
    std::vector<PartId> parts = reads_table_ ? parts_of(runs_) : std::vector<PartId>();
    if (norm_part_) parts.push_back(*norm_part_);
    return parts;
  }
  std::vector<Use> pieces() const override {
    std::vector<Use> uses;
    for (const kernels::Rows& run : runs_) uses.push_back({run.part, /*use=*/0});
    if (norm_part_) uses.push_back({*norm_part_, /*use=*/0});
    return uses;
  }

  void forward(const Pass& pass, const void* in, void*, void* saved) const override {
    Carver kept(saved);
    const Saved s = take_saved(pass, kept);
    norm_.forward(pass, in, s.normed, s.norm);
    Product p{.m = pass.rows, .n = columns_, .k = norm_.width, .in = pass.type};
    p.a = s.normed, p.lda = norm_.width;
    p.b = pass.matrix(table_), p.ldb = norm_.width, p.b_transposed = true;
    p.out = pass.type, p.c = s.logits, p.ldc = stride();
    pass.products.multiply(pass.stream, p);
    cross_entropy(pass.stream, pass.type, pass.rows, vocabulary_, stride(), s.logits, pass.targets,
                  pass.scale, pass.losses);
    sum_losses(pass.stream, pass.rows, pass.losses, pass.loss);
  }
  void backward(const Pass& pass, std::size_t piece, const void* in, void* saved, const void*,
                void* d_in) const override {
    Carver kept(saved);
    const Saved s = take_saved(pass, kept);
    if (piece < runs_.size()) {
      const kernels::Rows& run = runs_[piece];  // d_table = d_logits^T normed
      const auto first = static_cast<std::uint32_t>(run.first);
      const auto count = static_cast<std::uint32_t>(run.count);
      // Behind the last run's rows, zeros go to where no gradient is read.
      Product p{.m = std::max(count, std::min({whole(count), columns_ - first, rows_max_})),
                .n = norm_.width,
                .k = pass.rows,
                .in = pass.type};
      p.a = static_cast<const std::byte*>(s.logits) + first * bytes_of(pass.type);
      p.lda = stride(), p.a_transposed = true;
      p.b = s.normed, p.ldb = norm_.width;
      p.out = Precision::kFp32, p.c = pass.gradient, p.ldc = norm_.width;
      return pass.products.multiply(pass.stream, p);
    }
    Product p{.m = pass.rows, .n = norm_.width, .k = columns_, .in = pass.type};
    p.a = s.logits, p.lda = stride();
    p.b = pass.matrix(table_), p.ldb = norm_.width;
    p.out = pass.type, p.c = pass.scratch, p.ldc = norm_.width;
    pass.products.multiply(pass.stream, p);
    norm_.backward(pass, in, s.norm, pass.scratch, /*add=*/nullptr, d_in);
  }

 private:
  struct Saved {
    DeviceNorm::Statistics norm;
    void *logits = nullptr, *normed = nullptr;  // [rows, stride()], [rows, width]
  };
  Saved take_saved(const Pass& pass, Carver& carver) const {
    Saved s;
    s.norm = norm_.take(carver, pass.rows);
    s.logits = carver.take(pass.row_bytes(stride()));
    s.normed = carver.take(pass.row_bytes(norm_.width));
    return s;
  }
  static constexpr std::uint32_t whole(std::uint32_t columns) { return (columns + 63) / 64 * 64; }
  // Rows of logits begin where products read fastest.
  std::uint32_t stride() const { return whole(vocabulary_); }
  // Returns how many columns products have: all, where so many rows follow the table's begin.
  static std::uint32_t columns(const DeviceHeadShape& shape, const Tensors& tensors,
                               std::size_t table) {
    if (is_frozen(table)) return whole(shape.vocabulary);
    const Layout& layout = tensors.layout;
    const std::uint64_t begin = std::uint64_t{layout.tensors()[table].first_block} * kBlock;
    const std::uint64_t end = begin + std::uint64_t{whole(shape.vocabulary)} * shape.norm.width;
    return end <= layout.elements() ? whole(shape.vocabulary) : shape.vocabulary;
  }

  const std::uint32_t vocabulary_;
  const DeviceNorm norm_;
  const std::size_t table_;
  const bool reads_table_;
  const std::uint32_t columns_;   // of logits, in products
  const std::uint32_t rows_max_;  // of a part's gradient
  const std::vector<kernels::Rows> runs_;
  const std::optional<PartId> norm_part_;
};

}  // namespace

std::unique_ptr<DeviceLayer> make_embedding(const Embedding::Shape& shape, const Tensors& tensors) {
  return std::make_unique<DeviceEmbedding>(shape, tensors);
}

std::unique_ptr<DeviceLayer> make_head(const DeviceHeadShape& shape, const Tensors& tensors) {
  return std::make_unique<DeviceHead>(shape, tensors);
}

}  // namespace starling::kernels::cuda
