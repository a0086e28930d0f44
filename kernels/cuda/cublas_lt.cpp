#include "kernels/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/environment.h"
#include "core/base/exit.h"
#include "kernels/cuda/launch.h"

namespace starling::kernels::cuda {

// Holds a product to what Product says. k may be 0, and then a and b may be null.
static void check(const Product& p) {
  const bool reads_aux = p.epilogue == Epilogue::kGelu || p.epilogue == Epilogue::kGeluBackward ||
                         p.epilogue == Epilogue::kReluBackward;
  STARLING_CHECK(p.m == 0 || p.n == 0 || p.c != nullptr);
  STARLING_CHECK(p.k == 0 || (p.a != nullptr && p.b != nullptr));
  STARLING_CHECK(p.lda >= (p.a_transposed ? p.m : p.k));
  STARLING_CHECK(p.ldb >= (p.b_transposed ? p.k : p.n));
  STARLING_CHECK(p.ldc >= p.n);
  STARLING_CHECK(p.add == nullptr || p.ldadd >= p.n);
  STARLING_CHECK(p.add != p.c || p.c == nullptr || p.ldadd == p.ldc);
  STARLING_CHECK(!reads_aux || p.aux != nullptr);
  STARLING_CHECK(p.in == Precision::kFp32 || p.out == Precision::kFp32 || p.in == p.out);
}

namespace {

namespace fs = std::filesystem;

// The workspace is fixed, as another size may mean another algorithm; NVIDIA's value for Hopper.
constexpr std::size_t kWorkspace = 32 * 1024 * 1024;
constexpr std::uint32_t kBiasMax = 256 * 1024;  // columns of a bias that is rounded
constexpr int kCandidates = 16;

class OwnProducts final : public Products {
 public:
  void multiply(cudaStream_t stream, const Product& product) override {
    check(product);
    cuda::multiply(stream, product);
  }
  PlanTable plans() const override { return {}; }
  std::string describe() const override { return "own products"; }
};

[[noreturn]] void stop(int status, const std::string& line) {
  std::fprintf(stderr, "starling: %s\n", line.c_str());
  std::fflush(stderr);
  std::_Exit(status);
}

struct Freer {
  cudaError_t operator()(void* at) const { return cudaFree(at); }
};
template <class Bytes>
using Owned = std::unique_ptr<Bytes, int (*)(Bytes*)>;

// Made describes a product for the library, which counts by columns: c transposed is b
// transposed times a transposed, so its first operand is our b, and its rows are our columns.
struct Made {
  Plan plan;
  bool pinned = false;  // by a table
  Owned<lt::DescriptionBytes> description{nullptr, nullptr};
  Owned<lt::LayoutBytes> a{nullptr, nullptr}, b{nullptr, nullptr}, c{nullptr, nullptr},
      add{nullptr, nullptr};
};

// ---- abilities of the library -------------------------------------------------------------------

// Tells whether cublasLtMatmul() has these types with sums in fp32.
bool has_types(const Product& p) {
  return p.k > 0 && (p.out == Precision::kFp32 || p.out == p.in);
}

// Returns the epilogue that means the same; none if there is none. The library's ReLU backwards
// wants a mask of bits, and its aux is known for halves, with a leading dimension that is a
// multiple of 8. Added is before an epilogue, which no document says of those with aux.
std::optional<std::uint32_t> fused(const Product& p) {
  const bool aux = p.out != Precision::kFp32 && p.ldc % 8 == 0 && !p.add;
  if (!has_types(p) || (p.bias && p.out != Precision::kFp32 && p.n > kBiasMax)) return std::nullopt;
  switch (p.epilogue) {
    case Epilogue::kNone:
      return p.bias ? lt::kBias : lt::kNoEpilogue;
    case Epilogue::kRelu:
      if (p.add) return std::nullopt;
      return p.bias ? lt::kReluBias : lt::kRelu;
    case Epilogue::kGelu:
      if (!aux) return std::nullopt;
      return p.bias ? lt::kGeluAuxBias : lt::kGeluAux;
    case Epilogue::kGeluBackward:
      if (!aux || p.bias) return std::nullopt;
      return lt::kGeluBackward;
    case Epilogue::kReluBackward:
      return std::nullopt;
  }
  return std::nullopt;
}

int lt_type(Precision type) {
  if (type == Precision::kFp32) return lt::kF32;
  return type == Precision::kBf16 ? lt::kBf16 : lt::kF16;
}

bool possible(const Product& p, Way way) {
  if (way == Way::kFused) return fused(p).has_value();
  return way == Way::kOwn || (has_types(p) && (p.bias || p.epilogue != Epilogue::kNone));
}

// ---- products -----------------------------------------------------------------------------------

class LtProducts final : public Products {
 public:
  static Result<std::unique_ptr<LtProducts>> open(const std::string& device) {
    STARLING_TRY(library, open_cublas_lt());
    std::unique_ptr<LtProducts> made(new LtProducts(std::move(library), device));
    lt::Handle handle = nullptr;
    if (const int status = made->lt_.create(&handle); status != lt::kSuccess)
      return Error(Code::kUnavailable, made->library_->path.string() +
                                           ": cublasLtCreate: " + made->lt_.status_text(status));
    made->handle_ = {handle, made->lt_.destroy};
    void* memory = nullptr;
    const std::size_t bytes = kWorkspace + kBiasMax * bytes_of(Precision::kBf16);
    if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess)
      return Error(Code::kUnavailable,
                   std::string("no memory for cuBLASLt: ") + cudaGetErrorString(error));
    made->memory_.reset(memory);
    made->bias_ = static_cast<std::byte*>(memory) + kWorkspace;
    return made;
  }

  std::size_t version() const { return library_->version; }
  void pin(const PlanTable& table) { pinned_.insert(table.plans.begin(), table.plans.end()); }

  void multiply(cudaStream_t stream, const Product& product) override {
    check(product);
    if (product.m == 0 || product.n == 0) return;
    const PlanKey key = key_of(product);
    auto found = made_.find(key);
    if (found == made_.end()) found = made_.emplace(key, choose(product, key)).first;
    const Made& made = found->second;
    if (const int status = run(stream, product, made); status != lt::kSuccess) {
      check(cudaGetLastError(), "a product of cuBLASLt");
      stop(made.pinned ? kExitBadInput : kExitInternal, fault(key, made, status));
    }
  }

  PlanTable plans() const override {
    PlanTable table{.version = library_->version, .device = device_};
    for (const auto& [key, made] : made_) table.plans.emplace(key, made.plan);
    return table;
  }
  std::string describe() const override {
    return "cuBLASLt " + std::to_string(library_->version) + " from " + library_->path.string() +
           ", " + std::to_string(pinned_.size()) + " products pinned";
  }

  // Returns the fastest of all proposals.
  Plan fastest(cudaStream_t stream, const Product& product) {
    Plan best;
    double least = std::numeric_limits<double>::infinity();
    for (const Way way : {Way::kFused, Way::kPlain}) {
      if (!possible(product, way)) continue;
      Made made = describe(product, way);
      for (const lt::Algorithm& algorithm : candidates(product, made)) {
        made.plan = {way, algorithm};
        const double seconds = time(stream, product, made);
        if (seconds >= 0.99 * least) continue;
        best = made.plan;
        least = seconds;
      }
    }
    return best;
  }

 private:
  LtProducts(std::shared_ptr<const CublasLtLibrary> library, std::string device)
      : library_(std::move(library)), device_(std::move(device)), lt_(library_->functions) {}

  // Checks calls that fail only through a fault of ours or of the device.
  void expect(int status, const char* what) const {
    if (status != lt::kSuccess)
      stop(kExitInternal, std::string("cuBLASLt: ") + what + ": " + lt_.status_text(status));
  }

  std::string fault(const PlanKey& key, const Made& made, int status) const {
    return "cuBLASLt " + std::to_string(library_->version) + ": the " +
           (made.pinned ? "pinned " : "") + "algorithm for `" + text_of(key) +
           "` fails: " + lt_.status_text(status);
  }

  template <class Value>
  void set(const Made& made, int attribute, const Value& value) const {
    expect(lt_.set_description(made.description.get(), attribute, &value, sizeof value),
           "an attribute of a product");
  }

  Owned<lt::LayoutBytes> layout(Precision type, std::uint32_t rows, std::uint32_t columns,
                                std::uint32_t ld) const {
    lt::Layout layout = nullptr;
    expect(lt_.create_layout(&layout, lt_type(type), rows, columns, ld), "a layout");
    return {layout, lt_.destroy_layout};
  }

  // Describes all but the algorithm.
  Made describe(const Product& p, Way way) const {
    Made made;
    made.plan.way = way;
    if (way == Way::kOwn) return made;
    lt::Description description = nullptr;
    expect(lt_.create_description(&description, lt::kComputeF32, lt::kF32), "a description");
    made.description = {description, lt_.destroy_description};
    set(made, lt::kTransposeA, p.b_transposed ? lt::kTransposed : lt::kAsIs);
    set(made, lt::kTransposeB, p.a_transposed ? lt::kTransposed : lt::kAsIs);
    if (way == Way::kFused) set(made, lt::kEpilogue, fused(p).value());
    set_addresses(p, made);
    made.a = layout(p.in, p.b_transposed ? p.k : p.n, p.b_transposed ? p.n : p.k, p.ldb);
    made.b = layout(p.in, p.a_transposed ? p.m : p.k, p.a_transposed ? p.k : p.m, p.lda);
    made.c = layout(p.out, p.n, p.m, p.ldc);
    made.add = layout(p.out, p.n, p.m, p.add ? p.ldadd : p.ldc);
    return made;
  }

  // Algorithms depend on the alignment of these, so they are set before asking for one, too.
  void set_addresses(const Product& p, const Made& made) const {
    if (made.plan.way != Way::kFused) return;
    // The library wants the bias in the type of c.
    if (p.bias)
      set(made, lt::kBiasPointer,
          p.out == Precision::kFp32 ? static_cast<const void*>(p.bias)
                                    : static_cast<const void*>(bias_));
    if (p.epilogue == Epilogue::kGelu || p.epilogue == Epilogue::kGeluBackward) {
      set(made, lt::kAuxPointer, p.aux);
      set(made, lt::kAuxLd, std::int64_t{p.ldc});
    }
  }

  // Returns the library's proposals, the best first, of which each gives the same bits each time.
  std::vector<lt::Algorithm> candidates(const Product& p, const Made& made) const {
    lt::Preference raw = nullptr;
    expect(lt_.create_preference(&raw), "a preference");
    const Owned<lt::PreferenceBytes> preference(raw, lt_.destroy_preference);
    const auto prefer = [&](int attribute, const auto& value) {
      expect(lt_.set_preference(raw, attribute, &value, sizeof value), "a preference");
    };
    const PlanKey key = key_of(p);
    prefer(lt::kWorkspaceMax, std::uint64_t{kWorkspace});
    prefer(lt::kReductionMask, p.out == Precision::kFp32 ? lt::kReduceComputed : std::uint32_t{0});
    prefer(lt::kAlignA, std::uint32_t{key.align_b});
    prefer(lt::kAlignB, std::uint32_t{key.align_a});
    prefer(lt::kAlignC, std::uint32_t{p.add ? key.align_add : key.align_c});
    prefer(lt::kAlignD, std::uint32_t{key.align_c});
    std::vector<lt::Candidate> proposals(kCandidates);
    int got = 0;
    const int status =
        lt_.candidates(handle_.get(), made.description.get(), made.a.get(), made.b.get(),
                       made.add.get(), made.c.get(), raw, kCandidates, proposals.data(), &got);
    if (status == lt::kNotSupported || status == lt::kInvalidValue) return {};
    expect(status, "a proposal");
    std::vector<lt::Algorithm> algorithms;
    for (int i = 0; i < got; ++i)
      if (const lt::Candidate& c = proposals[static_cast<std::size_t>(i)];
          c.status == lt::kSuccess && c.workspace <= kWorkspace && repeats(c.algorithm))
        algorithms.push_back(c.algorithm);
    return algorithms;
  }

  // Returns whether each element is one sum, or sums over parts of k that lie
  // apart in the workspace and are added by a second step, in one order.
  bool repeats(const lt::Algorithm& algorithm) const {
    std::int32_t parts = 0;
    std::uint32_t reduction = 0;
    std::size_t written = 0;
    return lt_.attribute(&algorithm, lt::kSplitK, &parts, sizeof parts, &written) == 0 &&
           lt_.attribute(&algorithm, lt::kReduction, &reduction, sizeof reduction, &written) == 0 &&
           (reduction == lt::kReduceComputed || (parts <= 1 && reduction == 0));
  }

  Made choose(const Product& p, const PlanKey& key) const {
    if (const auto pinned = pinned_.find(key); pinned != pinned_.end())
      return choose_pinned(p, key, pinned->second);
    for (const Way way : {Way::kFused, Way::kPlain}) {
      if (!possible(p, way)) continue;
      Made made = describe(p, way);
      const auto proposals = candidates(p, made);
      if (proposals.empty()) continue;
      made.plan.algorithm = proposals.front();
      return made;
    }
    return describe(p, Way::kOwn);
  }

  Made choose_pinned(const Product& p, const PlanKey& key, const Plan& plan) const {
    if (!possible(p, plan.way))
      stop(kExitBadInput, "cuBLASLt: a table has the product `" + text_of(key) +
                              "` computed in a way that it cannot be");
    Made made = describe(p, plan.way);
    made.plan = plan;
    made.pinned = true;
    if (plan.way == Way::kOwn) return made;
    lt::Candidate checked{};
    int status = lt_.check(handle_.get(), made.description.get(), made.a.get(), made.b.get(),
                           made.add.get(), made.c.get(), &plan.algorithm, &checked);
    if (status == lt::kSuccess && checked.workspace > kWorkspace) status = lt::kNotSupported;
    if (status != lt::kSuccess) stop(kExitBadInput, fault(key, made, status));
    return made;
  }

  int run(cudaStream_t stream, const Product& p, const Made& made) const {
    if (made.plan.way == Way::kOwn) {
      cuda::multiply(stream, p);
      return lt::kSuccess;
    }
    if (made.plan.way == Way::kFused && p.bias && p.out != Precision::kFp32) {
      // A product of depth 0 is its bias, rounded.
      cuda::multiply(stream,
                     {.m = 1, .n = p.n, .out = p.out, .c = bias_, .ldc = p.n, .bias = p.bias});
    }
    set_addresses(p, made);
    const float one = 1, beta = p.add ? 1 : 0;
    const int status =
        lt_.multiply(handle_.get(), made.description.get(), &one, p.b, made.a.get(), p.a,
                     made.b.get(), &beta, p.add ? p.add : p.c, made.add.get(), p.c, made.c.get(),
                     &made.plan.algorithm, memory_.get(), kWorkspace, stream);
    if (status != lt::kSuccess || made.plan.way == Way::kFused) return status;
    Product rest = p;
    rest.add = nullptr;
    finish(stream, rest);
    return status;
  }

  // Returns the seconds for one product; infinite if it fails.
  double time(cudaStream_t stream, const Product& p, const Made& made) const {
    constexpr int kRounds = 5, kAtOnce = 10;
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      check(cudaStreamSynchronize(stream), "a product that is timed");
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kAtOnce; ++i)
        if (run(stream, p, made) != lt::kSuccess) return std::numeric_limits<double>::infinity();
      check(cudaStreamSynchronize(stream), "a product that is timed");
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (round > 0) least = std::min(least, taken.count() / kAtOnce);  // the first warms up
    }
    return least;
  }

  const std::shared_ptr<const CublasLtLibrary> library_;
  const std::string device_;
  const lt::Functions& lt_;
  Owned<lt::Context> handle_{nullptr, nullptr};
  std::unique_ptr<void, Freer> memory_;  // the workspace, then room for a bias
  std::byte* bias_ = nullptr;
  std::map<PlanKey, Plan> pinned_;
  std::map<PlanKey, Made> made_;
};

// ---- tables -------------------------------------------------------------------------------------

fs::path plans_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_products), &info) == 0 || !info.dli_fname)
    return {};
  std::error_code ignored;
  return fs::absolute(info.dli_fname, ignored).parent_path() / "plans";
}

bool is_for(const PlanTable& table, std::size_t version, const std::string& device) {
  return table.version == version && table.device == device;
}

Result<> pin_tables(LtProducts& products, const std::string& device) {
  if (const std::string& named = environment().value(EnvVar::kCudaPlans); !named.empty()) {
    STARLING_TRY(table, read_plans(named));
    if (!is_for(table, products.version(), device))
      return Error(Code::kBadInput, named + " is for cuBLASLt " + std::to_string(table.version) +
                                        " on " + table.device + ", here is " +
                                        std::to_string(products.version()) + " on " + device);
    products.pin(table);
    return ok();
  }
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(plans_folder(), error))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    STARLING_TRY(table, read_plans(file));
    if (is_for(table, products.version(), device)) products.pin(table);
  }
  return ok();
}

}  // namespace

std::unique_ptr<Products> own_products() {
  return std::make_unique<OwnProducts>();
}

Result<std::unique_ptr<Products>> cublas_lt_products(const std::string& device) {
  STARLING_TRY(products, LtProducts::open(device));
  STARLING_TRY(pin_tables(*products, device));
  return std::unique_ptr<Products>(std::move(products));
}

Result<> tune(cudaStream_t stream, const std::string& device, std::span<const Product> products,
              const fs::path& to) {
  STARLING_TRY(library, LtProducts::open(device));
  PlanTable table{.version = library->version(), .device = device};
  for (const Product& product : products)
    if (const PlanKey key = key_of(product); !table.plans.contains(key))
      table.plans.emplace(key, library->fastest(stream, product));
  std::ofstream file(to);
  file << text_of(table);
  if (!file.flush()) return Error(Code::kUnavailable, to.string() + " cannot be written");
  return ok();
}

}  // namespace starling::kernels::cuda
