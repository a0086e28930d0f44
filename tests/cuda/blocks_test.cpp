// What blocks of language models compute number by number: SwiGLU, rotary positions.

#include <cmath>

#include "kernels/cpu/table.h"
#include "tests/cuda/layers_rig.h"

namespace starling::kernels::cuda {
namespace {

// Goal: SwiGLU and its gradient are the reference's. Method: sizes around a pack and a block, gates out to where the
// sigmoid is 0 or 1; the gradient of the second product lies where dy was. Tolerance: a few roundings of fp32 and of
// its exponential, of numbers up to 100.
TEST_CASE("swiglu: the reference's numbers and gradient") {
  for (const std::size_t n : {1u, 7u, 8u, 1000u, 2049u})
    for (const Precision type : kTypes) {
      CAPTURE(n);
      Floats gate = normal(n, 1, 4), up = normal(n, 2), dy = normal(n, 3);
      gate[0] = -100;
      if (n > 1) gate[1] = 100;
      gate = kept(type, gate), up = kept(type, up), dy = kept(type, dy);
      Floats y(n), again(n), d_gate(n), d_up(n);
      reference_kernels().swiglu(n, gate.data(), up.data(), y.data());
      reference_kernels().swiglu_backward(n, gate.data(), up.data(), dy.data(), d_gate.data(),
                                          d_up.data(), again.data());
      const auto outputs = outputs_of([&](Calls& calls) {
        const void* const gates = calls.in(type, gate);
        const void* const ups = calls.in(type, up);
        void* const first = calls.out(type, n);
        void* const second = calls.out(type, n);
        void* const to_gate = calls.out(type, n);
        void* const to_up = calls.in_out(type, dy);
        swiglu(calls.stream, type, n, gates, ups, first);
        swiglu_backward(calls.stream, type, n, gates, ups, to_up, to_gate, to_up, second);
      });
      const Tolerance allowed = Tolerance{1e-6, 2e-6}.of(type);
      CHECK(off(outputs[0].as(type), y, allowed) <= 1);
      CHECK(off(outputs[1].as(type), again, allowed) <= 1);
      CHECK(off(outputs[2].as(type), d_gate, allowed) <= 1);
      CHECK(off(outputs[3].as(type), d_up, allowed) <= 1);
    }
}

// Goal: every head is turned by its row's position, and back. Method: the reference head by head; an odd number of pairs,
// whole packs, more rows than positions.
TEST_CASE("rotary positions: the reference's turns, both ways") {
  for (const RotaryShape shape : {RotaryShape{1, 1, 1, 1}, RotaryShape{7, 3, 2, 5},
                                  RotaryShape{12, 6, 3, 32}, RotaryShape{10, 5, 4, 64}})
    for (const Precision type : kTypes)
      for (const bool back : {false, true}) {
        CAPTURE(shape.pairs);
        const std::size_t width = 2 * shape.pairs, heads = std::size_t{shape.rows} * shape.heads;
        const Floats x = kept(type, normal(heads * width, 1));
        Floats cosines, sines;
        for (const float angle : normal(std::size_t{shape.positions} * shape.pairs, 2, 3)) {
          cosines.push_back(std::cos(angle));
          sines.push_back(std::sin(angle));
        }
        Floats want = x;
        for (std::size_t h = 0; h < heads; ++h) {
          const std::size_t at = h / shape.heads % shape.positions * shape.pairs;
          reference_kernels().rotate(shape.pairs, &cosines[at], &sines[at], back, &want[h * width]);
        }
        const auto outputs = outputs_of([&](Calls& calls) {
          rotate(calls.stream, type, shape, calls.in(cosines), calls.in(sines), back,
                 calls.in_out(type, x));
        });
        CHECK(off(outputs[0].as(type), want, Tolerance{1e-6, 1e-6}.of(type)) <= 1);
      }
}

}  // namespace
}  // namespace starling::kernels::cuda
