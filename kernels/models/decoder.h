#pragma once
// A Decoder reads a text token by token, and says what may follow.

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/cpu/table.h"

namespace starling::kernels {

// One text at a time, whose keys and values it keeps, so that a further token costs one row of each product.
// One thread.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::uint32_t vocabulary() const = 0;
  virtual std::uint32_t context() const = 0;  // tokens of a text, at most
  virtual std::uint32_t size() const = 0;     // tokens of this one
  // Begins an empty text.
  virtual void clear() = 0;
  // Appends at least one token, each below vocabulary(), to at most context() of the text. Returns the logits
  // of the next one, [vocabulary], valid until the next call.
  virtual std::span<const float> append(std::span<const std::uint32_t> tokens) = 0;
};

// `parameters`: flat in the layout, which is one of the model's tensors; both must outlive it. `kernels` compute.
// Null: the model is of a kind that follows no text.
std::unique_ptr<Decoder> make_decoder(const ModelSpec& spec, const KernelTable& kernels,
                                      const Layout& layout, std::span<const float> parameters);

}  // namespace starling::kernels
