#include "tools/reference/check.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <sstream>

#include "core/formats/safetensors.h"
#include "kernels/cpu/table.h"

namespace starling::reference {
namespace {

const std::string kGpt = "tests/fixtures/gpt-micro.safetensors";
const std::string kMlp = "tests/fixtures/mlp-micro.safetensors";

std::vector<std::string> isas() {
  std::vector<std::string> found;
  for (const char* isa : {"reference", "avx2", "avx512"})
    if (kernels::cpu_has(isa)) found.emplace_back(isa);
  return found;
}

void expect_within(const std::string& path, const std::string& isa) {
  CAPTURE(path);
  CAPTURE(isa);
  const auto report = check_fixture(path, isa);
  if (!report) {
    FAIL_CHECK(report.error().text());
    return;
  }
  CHECK(report.value().isa == isa);
  CHECK(report.value().rows.size() >= 9);
  CHECK(report.value().lines().size() == report.value().rows.size() + 1);
  for (const CheckRow& row : report.value().rows) {
    CAPTURE(row.kind);
    CAPTURE(row.tensor);
    CAPTURE(row.off);
    CHECK(row.within());
    CHECK(row.off > 0);  // exactly nothing would mean that nothing was compared
  }
}

TEST_CASE("check: losses, gradients and states are those of the reference files") {
  for (const std::string& isa : isas()) {
    expect_within(kGpt, isa);
    expect_within(kMlp, isa);
  }
}

// Files of other sizes and seeds, if somebody has put them beside the project.
TEST_CASE("check: further reference files, where there are any") {
  const std::filesystem::path folder = "../shared/fixtures";
  std::error_code none;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  if (paths.empty()) MESSAGE("skipped: no *.safetensors in ../shared/fixtures");
  for (const std::string& path : paths) expect_within(path, isas().back());
}

// A reference file in memory, to be spoilt and written again.
struct Copy {
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::vector<std::uint8_t>> data;
  std::vector<SafetensorsEntry> entries;

  explicit Copy(const std::string& path) {
    const auto file = SafetensorsFile::open(path);
    REQUIRE(file);
    metadata = file.value().metadata();
    entries = file.value().tensors();
    for (const auto& entry : entries) {
      data[entry.name].resize(entry.bytes);
      REQUIRE(file.value().read(entry, 0, data[entry.name]));
    }
  }
  std::span<float> floats(const std::string& name) {
    auto& bytes = data.at(name);
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / 4};
  }
  // Replaces in metadata `hyper`.
  void hyper(const std::string& from, const std::string& to) {
    std::string& text = metadata.at("hyper");
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  }
  void write(const std::string& path) const {
    std::vector<SafetensorsTensor> tensors;
    for (const auto& e : entries) tensors.push_back({e.name, e.dtype, e.shape, data.at(e.name)});
    REQUIRE(write_safetensors(path, std::move(tensors), metadata));
  }
};

// A file's path that no other process of this test uses.
std::filesystem::path temporary(const char* word) {
  std::ostringstream name;
  name << word << '-' << ::getpid() << ".safetensors";
  return std::filesystem::temp_directory_path() / name.str();
}

// Exchanges columns [0, c) and [c, 2c) of every c_attn.weight: keys for queries.
void swap_queries_and_keys(Copy& copy) {
  for (const char* name : {"param.h.0.attn.c_attn.weight", "param.h.1.attn.c_attn.weight"}) {
    const auto w = copy.floats(name);
    for (std::size_t row = 0; row < w.size(); row += 96)
      for (std::size_t j = 0; j < 32; ++j) std::swap(w[row + j], w[row + 32 + j]);
  }
}

// The error of GELU with erf for tanh, as large as it is in the worst tensor of the gradient.
void spoil_like_erf(Copy& copy) {
  const auto g = copy.floats("grad.h.1.mlp.c_fc.weight");
  float top = 0;
  for (const float x : g) top = std::max(top, std::abs(x));
  g[g.size() / 2] += 3.6e-5f * top;
}

// Goal: the check fails on errors of models and optimizers, even those that the loss hardly sees.
// Method: spoil one thing of a file; the named row must fail.
TEST_CASE("check: errors of model and optimizer are seen") {
  struct Case {
    const char* name;
    const std::string& file;
    std::function<void(Copy&)> spoil;
    const char* row;
  };
  const auto hyper = [](const char* from, const char* to) {
    return [=](Copy& copy) { copy.hyper(from, to); };
  };
  const Case cases[] = {
      {"keys for queries", kGpt, swap_queries_and_keys, "grad"},
      {"gelu with erf", kGpt, spoil_like_erf, "grad"},
      {"number of heads", kGpt, hyper("\"heads\": 2", "\"heads\": 4"), "grad"},
      {"no clipping", kGpt, hyper("\"clip\": 1.0", "\"clip\": 0.0"), "final"},
      {"no weight decay", kGpt, hyper("\"weight_decay\": 0.1", "\"weight_decay\": 0.0"), "final"},
      {"epsilon", kGpt, hyper("\"eps\": 1e-08", "\"eps\": 1e-07"), "final"},
      {"beta2", kGpt, hyper("\"beta2\": 0.95", "\"beta2\": 0.999"), "final_v"},
      {"warm-up", kGpt, hyper("\"warmup\": 2", "\"warmup\": 1"), "lr<k>"},
      {"value biases count in final", kGpt,
       [](Copy& c) { c.floats("final.h.0.attn.c_attn.bias")[64] += 1e-3f; }, "final"},
      {"key biases beyond the rates", kGpt,
       [](Copy& c) { c.floats("final.h.0.attn.c_attn.bias")[32] += 1e-1f; },
       "final, key biases, over sum of rates"},
      {"not a number", kGpt, [](Copy& c) { c.floats("grad.ln_f.bias")[3] = NAN; }, "grad"},
      {"plain momentum", kMlp, hyper("\"nesterov\": true", "\"nesterov\": false"), "sgd.final"},
      {"momentum", kMlp, hyper("\"momentum\": 0.9", "\"momentum\": 0.8"), "sgd.final_buf"},
      {"loss", kMlp, [](Copy& c) { c.floats("micro_loss")[2] *= 1.000002f; }, "loss"},
      {"relu's input", kMlp, [](Copy& c) { c.floats("param.fc0.bias")[0] += 0.01f; }, "grad"},
  };
  const std::filesystem::path path = temporary("spoilt");
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Copy copy(c.file);
    c.spoil(copy);
    copy.write(path.string());
    const auto report = check_fixture(path.string(), "auto");
    REQUIRE(report);
    CHECK_FALSE(report.value().within());
    bool seen = false;
    for (const CheckRow& row : report.value().rows) seen |= row.kind == c.row && !row.within();
    CHECK(seen);
  }
  std::filesystem::remove(path);
}

TEST_CASE("check: files that are no reference files are refused with a reason") {
  struct Case {
    const char* name;
    std::function<void(Copy&)> spoil;
    const char* message;
  };
  const auto drop = [](const char* name) {
    return
        [=](Copy& c) { std::erase_if(c.entries, [&](const auto& e) { return e.name == name; }); };
  };
  const Case cases[] = {
      {"no hyper", [](Copy& c) { c.metadata.erase("hyper"); }, "no metadata hyper"},
      {"hyper no JSON", [](Copy& c) { c.metadata["hyper"] = std::string("{"); }, "not JSON"},
      {"hyper a list", [](Copy& c) { c.metadata["hyper"] = std::string("[]"); }, "not an object"},
      {"other model", [](Copy& c) { c.metadata["model"] = std::string("\"rnn\""); }, "neither"},
      {"negative", [](Copy& c) { c.hyper("\"steps\": 5", "\"steps\": -5"); }, "hyper.steps"},
      {"zero", [](Copy& c) { c.hyper("\"micro\": 4", "\"micro\": 0"); }, "is 0"},
      {"huge", [](Copy& c) { c.hyper("\"layers\": 2", "\"layers\": 4000000000"); }, "hyper.layers"},
      {"other width", [](Copy& c) { c.hyper("\"width\": 32", "\"width\": 34"); },
       "expected [64,34]"},
      {"other steps", [](Copy& c) { c.hyper("\"steps\": 5", "\"steps\": 6"); }, "no tensor batch5"},
      {"no gradient", drop("grad.ln_f.bias"), "no tensor grad.ln_f.bias"},
      {"no loss", drop("loss3"), "no tensor loss3"},
      {"token beyond", [](Copy& c) { c.floats("batch0.tokens")[5] = 1.0f; }, "token"},
  };
  const std::filesystem::path path = temporary("refused");
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Copy copy(kGpt);
    c.spoil(copy);
    copy.write(path.string());
    const auto report = check_fixture(path.string(), "auto");
    REQUIRE_FALSE(report);
    CAPTURE(report.error().text());
    CHECK(report.error().code() == Code::kBadInput);
    CHECK(report.error().text().find(c.message) != std::string::npos);
  }
  std::filesystem::remove(path);
  CHECK_FALSE(check_fixture("no such file", "auto"));
  CHECK_FALSE(check_fixture(kMlp, "sse9"));
}

}  // namespace
}  // namespace starling::reference
