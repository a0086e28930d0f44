#include "kernels/cuda/net_maker.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/queue.h"

namespace starling::kernels::cuda {

NetMaker::NetMaker(const MakerSpec& spec, CudaDevice& device, std::unique_ptr<Products> products,
                   const Input& input, DeviceLayers layers,
                   std::shared_ptr<const DeviceFrozen> frozen)
    : GradientMaker(spec.layout, device),
      device_(device),
      input_(input),
      recompute_(spec.recompute),
      sequences_(spec.sequences),
      layers_(std::move(layers)),
      frozen_(std::move(frozen)),
      rank_(lora_of(spec.model).rank),
      products_(std::move(products)),
      pass_{.layout = spec.layout, .products = *products_},
      recorder_(static_cast<CudaQueue&>(queue()).stream()),
      order_(static_cast<std::uint32_t>(input.vocabulary)) {
  pass_.stream = static_cast<CudaQueue&>(queue()).stream();
  pass_.type = spec.precision;
  pass_.sequences = sequences_;
  pass_.rows = static_cast<std::uint32_t>(sequences_ * input.positions);
  pass_.frozen = frozen_.get();
  take_batch_memory(device);
  take_memory(device, spec.frozen);
}

void NetMaker::take_batch_memory(Device& device) {
  const std::size_t rows = pass_.rows, features = rows * input_.features;
  const auto both = [&]<class T>(Array<T>& here, Array<T>& there, std::size_t n) {
    here = Array<T>::pinned(device, n);
    there = Array<T>(device, n);
  };
  both(targets_here_, targets_, rows);
  pass_.targets = targets_.data();
  both(scale_here_, scale_, 1);
  pass_.scale = scale_.data();
  loss_ = Array<double>::pinned(device, 1);
  pass_.loss = loss_.data();
  if (input_.features == 0) {
    const auto vocabulary = static_cast<std::size_t>(input_.vocabulary);
    both(tokens_here_, tokens_, rows);
    both(token_rows_here_, token_rows_, vocabulary + 1 + rows);
    pass_.tokens = tokens_.data();
    pass_.token_rows = {token_rows_.data(), token_rows_.data() + vocabulary + 1};
    return;
  }
  both(x_here_, x_, features);
  pass_.x = x_.data();
  if (pass_.type == Precision::kFp32) return;
  x_rounded_ = Array<std::uint16_t>(device, features);
  pass_.x = x_rounded_.data();
}

void NetMaker::take_memory(Device& device, const std::vector<TensorSpec>* frozen) {
  std::size_t widest = 0, scratch = 0, shared = 0;
  for (const auto& layer : layers_) {
    widest = std::max(widest, layer->width());
    scratch = std::max(scratch, layer->scratch(pass_));
    shared = std::max(shared, layer->saved(pass_));
  }
  std::size_t longest = widest;  // of a tensor's rows, whose sums are made in partials
  const auto note = [&](const TensorSpec& tensor) {
    longest = std::max<std::size_t>(longest, tensor.shape.empty() ? 1 : tensor.shape.back());
  };
  for (const TensorPlace& tensor : layout().tensors()) note(tensor.spec);
  if (frozen != nullptr) std::ranges::for_each(*frozen, note);
  const auto row_bytes = [&](std::size_t width) {
    return std::size_t{pass_.rows} * width * bytes_of(pass_.type);
  };
  const auto carve = [&](void* base) {
    Carver carver(base);
    outs_.clear();
    saved_.clear();
    void* const one = recompute_ ? carver.take(shared) : nullptr;
    for (const auto& layer : layers_) {
      outs_.push_back(carver.take(row_bytes(layer->width())));
      saved_.push_back(recompute_ ? one : carver.take(layer->saved(pass_)));
    }
    for (void*& d : d_) d = carver.take(row_bytes(widest));
    pass_.scratch = carver.take(scratch);
    pass_.partials = carver.take_array<float>(2 * partial_floats(longest));
    pass_.losses = carver.take_array<double>(pass_.rows);
    pass_.low = carver.take(row_bytes(rank_));
    pass_.d_low = carver.take(row_bytes(rank_));
    pass_.unwanted = carver.take_array<float>(frozen_ ? 2 * longest : 0);
    for (float*& g : gradients_) g = carver.take_array<float>(layout().largest_part());
    pass_.rounded = pass_.type != Precision::kFp32
                        ? carver.take_array<std::uint16_t>(layout().elements())
                        : nullptr;
    return carver.used();
  };
  memory_ = Array<std::byte>(device, carve(nullptr));
  carve(memory_.data());
}

Result<MicroBatchResult> NetMaker::pass(const Batch& batch) {
  STARLING_TRY(kernels::check(input_, batch, sequences_));
  if (frozen_) {
    STARLING_TRY(frozen_->intact());
  }
  device_.use();
  if (pass_.parameters != working().parameters) {
    recorder_.forget();
    pass_.parameters = working().parameters;
  }
  load(batch);
  if (forward()) backward();
  queue().wait();  // the batch's memory is free again
  const std::uint32_t targets = targets_in(batch);
  const double loss = loss_.all()[0] / targets;
  return MicroBatchResult{loss, targets, std::isfinite(loss)};
}

void NetMaker::load(const Batch& batch) {
  const auto put = [&]<class T>(std::span<const T> values, Array<T>& here, Array<T>& there,
                                std::size_t first = 0) {
    std::ranges::copy(values, here.part(first, values.size()).begin());
    there.copy_in(queue(), first, here.part(first, values.size()));
  };
  put(std::span(batch.targets), targets_here_, targets_);
  const auto scale = static_cast<float>(std::ldexp(1.0 / targets_in(batch), working().scale));
  put(std::span(&scale, 1), scale_here_, scale_);
  if (input_.features == 0) {
    put(std::span(batch.tokens), tokens_here_, tokens_);
    order_.sort(batch.tokens);
    put(order_.begins(), token_rows_here_, token_rows_);
    put(order_.rows(), token_rows_here_, token_rows_, order_.begins().size());
    return;
  }
  put(std::span(batch.x), x_here_, x_);
  if (x_rounded_.size() > 0)
    to_halves(pass_.stream, pass_.type, batch.x.size(), x_.data(), x_rounded_.data());
}

const void* NetMaker::input_of(std::size_t layer) const {
  return layer > 0 ? outs_[layer - 1] : pass_.x;
}

bool NetMaker::open(PartId p) {
  if (!await(p)) return false;
  if (pass_.rounded == nullptr) return true;
  const Part& part = layout().parts()[p];
  to_halves(pass_.stream, pass_.type, part.elements(), pass_.parameters + part.first(),
            const_cast<std::uint16_t*>(pass_.rounded) + part.first());
  return true;
}

bool NetMaker::forward() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (const PartId part : layers_[i]->parts())
      if (!open(part)) return false;
    recorder_.run(i, [&] { layers_[i]->forward(pass_, input_of(i), outs_[i], saved_[i]); });
  }
  return true;
}

void NetMaker::backward() {
  std::size_t piece = layers_.size();  // counts as the recorder does, after the forward pass
  std::size_t given = 0;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const DeviceLayer& layer = *layers_[i];
    const std::vector<Use> uses = layer.pieces();
    const void* const d_out = d_[(i + 1) % 2];
    void* const d_in = i > 0 ? d_[i % 2] : nullptr;
    for (std::size_t n = 0; n < std::max<std::size_t>(1, uses.size()); ++n) {
      pass_.gradient = gradients_[given % 2];  // in every pass the same for a piece, as graphs want
      recorder_.run(piece++, [&] {
        // Writes `out` once more, with the same bits. What the last layer saved is still there.
        if (n == 0 && recompute_ && i + 1 < layers_.size() && layer.saved(pass_) > 0)
          layer.forward(pass_, input_of(i), outs_[i], saved_[i]);
        layer.backward(pass_, n, input_of(i), saved_[i], d_out, d_in);
        if (n < uses.size()) clear_padding(uses[n].part);
      });
      if (n >= uses.size()) continue;
      give(uses[n].part, uses[n].use, pass_.gradient);
      ++given;
    }
  }
}

// Clears the padding of each tensor's last block in that part.
void NetMaker::clear_padding(PartId p) {
  const Part& part = layout().parts()[p];
  for (std::uint32_t b = part.first_block; b < part.first_block + part.blocks; ++b) {
    const std::uint32_t used = layout().used(b);
    if (used == kBlock) continue;
    float* const block = pass_.gradient + std::size_t{b - part.first_block} * kBlock;
    cuda::check(cudaMemsetAsync(block + used, 0, (kBlock - used) * sizeof(float), pass_.stream),
                "zeros");
  }
}

}  // namespace starling::kernels::cuda
