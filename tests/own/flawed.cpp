// examples/own with flaws: its model or its data throw, as an application's do, or are slow.

#include <fcntl.h>
#include <starling.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

using namespace starling;

namespace {

// [model].options name one of these; kOneModelThrows shows in the first process that comes to it.
enum Flaw { kNone, kModelThrows, kDataThrow, kOneModelThrows };

// Of 500: read in one of the first steps, by whichever worker has its share, and not before.
constexpr std::int32_t kSample = 77;

// Returns whether this process is the first of a run that asks. FLAW names a file that is made for it.
bool is_first() {
  const char* file = std::getenv("FLAW");
  if (file == nullptr) return false;
  const int made = ::open(file, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) ::close(made);
  return made >= 0;
}

// Sleeps for the milliseconds that a variable of the environment says, if it is there.
void sleep_for(const char* variable) {
  const char* ms = std::getenv(variable);
  if (ms != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(ms)));
}

class Mean : public kernels::Model {
 public:
  explicit Mean(Flaw flaw) : flaw_(flaw) {}

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::ranges::fill(parameters, 0.0f);
    return ok();
  }
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                     const Batch& batch, kernels::Workspace&,
                                                     std::span<float> gradient) const override {
    sleep_for("SLOW_MS");
    const bool met = std::ranges::find(batch.targets, kSample) != batch.targets.end();
    if (met && (flaw_ == kModelThrows || (flaw_ == kOneModelThrows && is_first())))
      throw std::runtime_error("sample 77 has no mean");
    std::ranges::fill(gradient, 0.0f);
    double loss = 0;
    for (std::uint32_t i = 0; i < batch.sequences; ++i) {
      const float error = parameters[0] - batch.x[i];
      loss += double(error) * error / batch.sequences;
      gradient[0] += 2 * error / float(batch.sequences);
    }
    return kernels::MicroBatchResult{loss, batch.sequences, true, {}};
  }

 private:
  const Flaw flaw_;
  const std::vector<TensorSpec> tensors_{{"mean", {1}}};
};

Flaw flaw_of(const OwnSpec& spec) {
  return Flaw(int(spec.option("flaw", kNone)));
}

Result<std::unique_ptr<kernels::Model>> make_mean(const OwnSpec& spec) {
  return std::unique_ptr<kernels::Model>(new Mean(flaw_of(spec)));
}

// Opens 500 numbers without an identity. OTHER names a number that is another one in this process.
Result<OwnData> open_numbers(const OwnSpec& spec, const std::string&) {
  const char* named = std::getenv("OTHER");
  const std::uint64_t other = named == nullptr ? 500 : std::strtoull(named, nullptr, 10);
  OwnData data;
  data.samples = 500;
  data.append = [flaw = flaw_of(spec), other](std::uint64_t i, Batch& batch) -> Result<> {
    sleep_for("SLOW_DATA_MS");
    if (flaw == kDataThrow && i == kSample) throw std::out_of_range("no sample 77 in the file");
    batch.x.push_back(i == other ? 9.0f : float(i % 8));
    batch.targets.push_back(std::int32_t(i));
    return ok();
  };
  return data;
}

}  // namespace

int main(int argc, char** argv) {
  Registry mine;
  mine.model("mean", make_mean, open_numbers);
  return starling::main(argc, argv, mine);
}
