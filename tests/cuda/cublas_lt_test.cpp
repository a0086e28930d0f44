#include "kernels/cuda/cublas_lt.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/exit.h"
#include "kernels/cuda/cublas_lt_library.h"
#include "kernels/cuda/plans.h"
#include "tests/cuda/fake_cublas_lt.h"
#include "tests/cuda/folder.h"
#include "tests/cuda/products_rig.h"
#include "tests/kernels/ending.h"
#include "tests/scoped_variable.h"

namespace starling::kernels::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevice = "imitated GPU";

// What the imitated library has beyond the real one's functions.
struct Fake {
  Fake() : library(dlopen(STARLING_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE(library != nullptr);
    find("fake_cublas_lt_refuse", refuse);
    find("fake_cublas_lt_break", break_algorithm);
    find("fake_cublas_lt_runs", runs);
    find("fake_cublas_lt_proposals", proposals);
    find("fake_cublas_lt_living", living);
  }
  ~Fake() {
    refuse(0);
    break_algorithm(-1);
  }
  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    REQUIRE((function != nullptr));
  }
  std::vector<int> all_runs() const {
    std::vector<int> all;
    for (int i = 0; i < fake::kAlgorithms; ++i) all.push_back(runs(i));
    return all;
  }

  void* library;
  void (*refuse)(std::uint32_t);
  void (*break_algorithm)(int);
  int (*runs)(int);
  int (*proposals)(int);
  int (*living)();
};

std::unique_ptr<Products> open_fake() {
  const ScopedVariable place("STARLING_CUBLASLT", STARLING_FAKE_CUBLASLT);
  auto products = cublas_lt_products(kDevice);
  REQUIRE_MESSAGE(products.has_value(), products.error().text());
  return std::move(products).value();
}
std::unique_ptr<Products> open_fake(const std::string& plans) {
  const ScopedVariable table("STARLING_CUDA_PLANS", plans);
  return open_fake();
}

// How one product was computed.
Plan plan_of(const Products& products, const Product& product) {
  const PlanTable table = products.plans();
  const auto found = table.plans.find(key_of(product));
  REQUIRE(found != table.plans.end());
  return found->second;
}
Way way_of(Products& products, const ProductCase& c) {
  CAPTURE(c.text());
  const ProductRun run(c);
  products.multiply(nullptr, run.product());
  run.compare(/*twice=*/true);
  return plan_of(products, run.product()).way;
}

ProductCase half_case(Precision type = Precision::kBf16) {
  return {.m = 24, .n = 40, .k = 16, .in = type, .out = type};
}

// ---- products -----------------------------------------------------------------------------------

TEST_CASE(
    "products through cuBLASLt are those of plain loops, and none adds parts of k in any order") {
  const Fake fake;
  const auto before = fake.all_runs();
  const auto products = open_fake();
  for (const ProductCase& c : awkward_products()) check_product(*products, c, /*twice=*/true);
  for (const ProductCase& c : followed_products()) check_product(*products, c, /*twice=*/true);
  CHECK(fake.runs(fake::kSplit) == before[fake::kSplit]);
  CHECK(fake.runs(fake::kReduced) > before[fake::kReduced]);  // of what is fp32
  const int proposed = fake.proposals(fake::kReduced);
  for (const Precision type : kHalves) check_product(*products, half_case(type), /*twice=*/true);
  CHECK(fake.proposals(fake::kReduced) == proposed);
  CHECK(fake.runs(fake::kSlow) > before[fake::kSlow]);  // the first that is left
}

TEST_CASE("cuBLASLt is told how each matrix is aligned") {
  const Fake fake;
  const auto products = open_fake();
  ProductCase c = half_case();
  c.adds = Adds::kOther;
  c.offset = 8;
  const ProductRun run(c);
  int before = fake.proposals(fake::kAligned);
  products->multiply(nullptr, run.product());
  CHECK(fake.proposals(fake::kAligned) == before + 1);
  before = fake.proposals(fake::kAligned);
  for (const int which : {0, 1, 2, 3}) {
    Product moved = run.product();  // by one element, out of a row or two less
    --moved.m, --moved.k;
    const auto move = [](auto& at) {
      at = const_cast<std::byte*>(static_cast<const std::byte*>(at)) + bytes_of(Precision::kBf16);
    };
    if (which == 0) move(moved.a);
    if (which == 1) move(moved.b);
    if (which == 2) move(moved.c);
    if (which == 3) move(moved.add);
    products->multiply(nullptr, moved);
  }
  CHECK(fake.proposals(fake::kAligned) == before);
}

TEST_CASE("cuBLASLt does what follows a product where it has an equal") {
  const auto products = open_fake();
  for (const Precision type : kHalves) {
    const auto way_with = [&](auto change) {
      ProductCase c = half_case(type);
      change(c);
      return way_of(*products, c);
    };
    CHECK(way_with([](auto&) {}) == Way::kFused);
    CHECK(way_with([](auto& c) { c.adds = Adds::kItself, c.bias = true; }) == Way::kFused);
    CHECK(way_with([](auto& c) { c.epilogue = Epilogue::kGelu, c.bias = true; }) == Way::kFused);
    CHECK(way_with([](auto& c) { c.epilogue = Epilogue::kGeluBackward; }) == Way::kFused);
    CHECK(way_with([](auto& c) { c.epilogue = Epilogue::kRelu; }) == Way::kFused);
    // A mask of bits instead of aux, lines of aux, a sum before aux, GELU of fp32.
    CHECK(way_with([](auto& c) { c.epilogue = Epilogue::kReluBackward; }) == Way::kPlain);
    CHECK(way_with([](auto& c) { c.epilogue = Epilogue::kGelu, c.pad = 4; }) == Way::kPlain);
    CHECK(way_with([](auto& c) { c.epilogue = Epilogue::kGelu, c.adds = Adds::kOther; }) ==
          Way::kPlain);
    CHECK(way_with([](auto& c) {
            c.in = c.out = Precision::kFp32;
            c.epilogue = Epilogue::kGelu;
          }) == Way::kPlain);
    CHECK(way_with([](auto& c) { c.in = Precision::kFp32; }) == Way::kOwn);
  }
}

TEST_CASE("products of bf16 and of fp16 have plans of their own") {
  const auto products = open_fake();
  for (const Precision type : kHalves) CHECK(way_of(*products, half_case(type)) == Way::kFused);
  CHECK(products->plans().plans.size() == 2);
}

TEST_CASE("an epilogue that this cuBLASLt lacks is computed by our own kernel") {
  const Fake fake;
  const auto products = open_fake();
  ProductCase c = half_case();
  c.epilogue = Epilogue::kGeluBackward;
  fake.refuse(lt::kGeluBackward);
  CHECK(way_of(*products, c) == Way::kPlain);
  c.epilogue = Epilogue::kNone;
  fake.refuse(lt::kNoEpilogue);
  CHECK(way_of(*products, c) == Way::kOwn);
}

TEST_CASE("a product is prepared once, and everything is given back") {
  const Fake fake;
  REQUIRE(fake.living() == 0);
  {
    const auto products = open_fake();
    const ProductRun run(half_case());
    products->multiply(nullptr, run.product());
    const int living = fake.living();
    for (int i = 0; i < 3; ++i) products->multiply(nullptr, run.product());
    CHECK(fake.living() == living);
    CHECK(products->plans().plans.size() == 1);
    CHECK(products->describe().find(std::to_string(fake::kVersion)) != std::string::npos);
  }
  CHECK(fake.living() == 0);
}

// The first product is asked for before, as a model's first micro-batch is.
TEST_CASE("products through cuBLASLt can be captured") {
  const auto products = open_fake();
  ProductCase c = half_case();
  c.bias = true, c.epilogue = Epilogue::kGelu;
  const ProductRun run(c), again(c);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  products->multiply(stream, run.product());
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  products->multiply(stream, again.product());
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
  for (int i = 0; i < 2; ++i) check(cudaGraphLaunch(executable, stream), "a graph");
  check(cudaStreamSynchronize(stream), "a graph");
  again.compare(/*twice=*/true);
  check(cudaGraphExecDestroy(executable), "a graph");
  check(cudaGraphDestroy(graph), "a graph");
  check(cudaStreamDestroy(stream), "a stream");
}

// ---- tables -------------------------------------------------------------------------------------

TEST_CASE("a table of plans is its text") {
  PlanTable table{.version = 130100, .device = "NVIDIA H100 80GB HBM3"};
  for (const ProductCase& c : followed_products()) {
    const ProductRun run(c);
    Plan plan{.way = static_cast<Way>(c.seed % 3)};
    if (plan.way != Way::kOwn)
      for (std::uint64_t& word : plan.algorithm.data) word = c.seed * 0x9e3779b97f4a7c15u;
    table.plans.emplace(key_of(run.product()), plan);
  }
  const auto parsed = parse_plans(text_of(table));
  REQUIRE_MESSAGE(parsed.has_value(), parsed.error().text());
  CHECK(parsed.value().version == table.version);
  CHECK(parsed.value().device == table.device);
  CHECK(parsed.value().plans.size() == table.plans.size());
  CHECK(text_of(parsed.value()) == text_of(table));
}

TEST_CASE("a damaged table of plans is refused") {
  const std::string head = "cublaslt 130100\ndevice GPU\n";
  const std::string key = "24 40 16 bf16 bf16 n t 16 16 40 0 - none 256 256 256 256 256 256";
  const std::string algorithm(128, 'a');
  CHECK(parse_plans(head).has_value());
  CHECK(parse_plans(head + key + " fused " + algorithm + "\n").has_value());
  CHECK(parse_plans("# a comment\n\n" + head + key + " own\n").has_value());
  for (const std::string& text :
       {std::string(), std::string("cublaslt 130100\n"), std::string("device GPU\n"),
        "cublaslt x\n" + head, head + key + "\n", head + key + " fused\n",
        head + key + " fused " + algorithm.substr(1) + "\n",
        head + key + " fused " + algorithm.substr(1) + "g\n", head + key + " own " + algorithm,
        head + key + " plain " + algorithm + " more\n", head + "x" + key + " own\n",
        head + key + " other " + algorithm, head + key + " own\n" + key + " own\n",
        head + "4294967296" + key.substr(2) + " own\n"}) {
    CAPTURE(text);
    const auto parsed = parse_plans(text);
    REQUIRE(!parsed.has_value());
    CHECK(parsed.error().code() == Code::kBadInput);
  }
}

// A table with one product and algorithm in a file.
std::string write_table(const Folder& folder, const Product& product, Plan plan,
                        std::size_t version = fake::kVersion, const char* device = kDevice) {
  PlanTable table{.version = version, .device = device};
  table.plans.emplace(key_of(product), plan);
  const std::string path = folder.path + "/table.txt";
  std::ofstream(path) << text_of(table);
  return path;
}

TEST_CASE("a table wins over what the library proposes") {
  const Fake fake;
  const Folder folder;
  const ProductRun run(half_case());
  const auto proposed = open_fake();
  proposed->multiply(nullptr, run.product());
  Plan plan = plan_of(*proposed, run.product());
  CHECK((plan.algorithm.data[0] & 0xffffffff) == fake::kSlow);
  plan.algorithm.data[0] += fake::kAny - fake::kSlow;

  const auto pinned = open_fake(write_table(folder, run.product(), plan));
  const auto before = fake.all_runs();
  pinned->multiply(nullptr, run.product());
  run.compare(/*twice=*/true);
  CHECK(fake.runs(fake::kAny) == before[fake::kAny] + 1);
  CHECK(fake.runs(fake::kSlow) == before[fake::kSlow]);
  CHECK(text_of(pinned->plans()) != text_of(proposed->plans()));

  const auto own = open_fake(write_table(folder, run.product(), {.way = Way::kOwn}));
  own->multiply(nullptr, run.product());
  CHECK(plan_of(*own, run.product()).way == Way::kOwn);
}

TEST_CASE("a table for another version or device is refused if it was named, else passed over") {
  const ScopedVariable place("STARLING_CUBLASLT", STARLING_FAKE_CUBLASLT);
  const Folder folder;
  const ProductRun run(half_case());
  for (const auto& [version, device] :
       {std::pair{fake::kVersion + 1, kDevice}, {fake::kVersion, "another GPU"}}) {
    const std::string path =
        write_table(folder, run.product(), {.way = Way::kOwn}, version, device);
    const ScopedVariable named("STARLING_CUDA_PLANS", path);
    const auto refused = cublas_lt_products(kDevice);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().code() == Code::kBadInput);
  }
  const ScopedVariable missing("STARLING_CUDA_PLANS", folder.path + "/none.txt");
  CHECK(!cublas_lt_products(kDevice).has_value());
}

// Tables of the bundle lie beside the code; here that is the test program.
TEST_CASE("tables that lie beside the code are used where they fit") {
  const fs::path plans = fs::read_symlink("/proc/self/exe").parent_path() / "plans";
  REQUIRE(!fs::exists(plans));
  const Folder elsewhere;
  const ProductRun run(half_case());
  const Plan own{.way = Way::kOwn};
  for (const char* const device : {"another GPU", kDevice}) {
    const std::string table = write_table(elsewhere, run.product(), own, fake::kVersion, device);
    fs::create_directory(plans);
    fs::copy_file(table, plans / "table.txt");
    const auto products = open_fake();
    fs::remove_all(plans);
    products->multiply(nullptr, run.product());
    CHECK((plan_of(*products, run.product()).way == Way::kOwn) == (device == kDevice));
  }
}

TEST_CASE("a pinned algorithm that fails ends the process with one line") {
  const Fake fake;
  const Folder folder;
  const ProductRun run(half_case());
  const auto proposed = open_fake();
  proposed->multiply(nullptr, run.product());
  const Plan plan = plan_of(*proposed, run.product());
  const auto expect = [](const Ending& ending, int status, const char* word) {
    CAPTURE(ending.text);
    CHECK(ending.status == status);
    CHECK(ending.text.starts_with("starling: cuBLASLt"));
    CHECK(ending.text.find(word) != std::string::npos);
    CHECK(ending.text.find('\n') == ending.text.size() - 1);
  };

  // It is not one of this library.
  Plan unknown = plan;
  unknown.algorithm.data[1] ^= 1;
  const auto with_unknown = open_fake(write_table(folder, run.product(), unknown));
  expect(ending_of([&] { with_unknown->multiply(nullptr, run.product()); }), kExitBadInput,
         "pinned algorithm");

  // It is one, but fails when it is used.
  const auto with_broken = open_fake(write_table(folder, run.product(), plan));
  fake.break_algorithm(fake::kSlow);
  expect(ending_of([&] { with_broken->multiply(nullptr, run.product()); }), kExitBadInput,
         "pinned algorithm");
  // So does one that the library proposed: another one might have other bits.
  expect(ending_of([&] { proposed->multiply(nullptr, run.product()); }), kExitInternal,
         "algorithm for");
  fake.break_algorithm(-1);

  // The library has no such epilogue.
  ProductCase c = half_case();
  c.epilogue = Epilogue::kReluBackward;
  const ProductRun backward(c);
  const auto impossible = open_fake(write_table(folder, backward.product(), plan));
  expect(ending_of([&] { impossible->multiply(nullptr, backward.product()); }), kExitBadInput,
         "table");
}

TEST_CASE("tuning writes the fastest algorithms to a table that is then used") {
  const Fake fake;
  const Folder folder;
  ProductCase gelu = half_case(), odd = half_case(), own = half_case();
  gelu.bias = true, gelu.epilogue = Epilogue::kGelu;
  odd.pad = odd.offset = 1;
  own.in = Precision::kFp32;
  const ProductRun runs[] = {ProductRun(gelu), ProductRun(odd), ProductRun(own)};
  const std::string path = folder.path + "/tuned.txt";
  {
    const ScopedVariable place("STARLING_CUBLASLT", STARLING_FAKE_CUBLASLT);
    const Product products[] = {runs[0].product(), runs[1].product(), runs[2].product(),
                                runs[0].product()};
    const auto tuned = tune(nullptr, kDevice, products, path);
    REQUIRE_MESSAGE(tuned.has_value(), tuned.error().text());
    CHECK(!tune(nullptr, kDevice, products, folder.path + "/none/tuned.txt").has_value());
  }
  const auto table = read_plans(path);
  REQUIRE_MESSAGE(table.has_value(), table.error().text());
  CHECK(table.value().plans.size() == 3);

  const auto products = open_fake(path);
  const auto before = fake.all_runs();
  for (const ProductRun& run : runs) {
    products->multiply(nullptr, run.product());
    run.compare(/*twice=*/true);
  }
  CHECK(fake.runs(fake::kSlow) == before[fake::kSlow]);
  CHECK(fake.runs(fake::kAny) > before[fake::kAny]);  // of the operands at odd places
  CHECK(text_of(products->plans()) == text_of(table.value()));
}

}  // namespace
}  // namespace starling::kernels::cuda
