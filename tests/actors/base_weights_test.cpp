#include "actors/base_weights.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "actors/make_model.h"
#include "actors/pretrained.h"
#include "core/formats/job_file.h"
#include "core/formats/safetensors.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"
#include "tests/kernels/random_inputs.h"

namespace starling::actors {
namespace {

const GptSpec kBase{.layers = 2, .heads = 3, .width = 24, .context = 12, .vocabulary = 256};

// Parameters whose values are those of 16 bits.
std::vector<float> base_values(const Layout& layout, const kernels::Model& model) {
  std::vector<float> values(layout.elements());
  REQUIRE(model.initialise(7, layout, values));
  for (float& value : values)
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000u);
  return values;
}

// Writes a published GPT-2: of floats or of 16 bits, with names as they are or with transformers' prefix. `spare`: with a
// head that is the embedding, and masks, as older files have them.
void write_base(const std::string& folder, Dtype dtype, bool prefix, bool spare = false) {
  const auto model = kernels::make_model(kBase, "auto").value();
  const Layout layout(model->tensors());
  const auto values = base_values(layout, *model);
  std::vector<std::uint16_t> halves(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    halves[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  std::vector<SafetensorsTensor> tensors;
  for (const TensorPlace& place : layout.tensors()) {
    const std::size_t at = std::size_t{place.first_block} * kBlock;
    tensors.push_back(
        {(prefix ? "transformer." : "") + place.spec.name, dtype, place.spec.shape,
         dtype == Dtype::kF32
             ? as_bytes(std::span<const float>(values).subspan(at, place.spec.elements()))
             : as_bytes(
                   std::span<const std::uint16_t>(halves).subspan(at, place.spec.elements()))});
  }
  const std::vector<float> mask(12 * 12, 1);
  if (spare) {
    tensors.push_back({"h.0.attn.bias", Dtype::kF32, {1, 1, 12, 12}, as_bytes(std::span(mask))});
    tensors.push_back(tensors.front());
    tensors.back().name = "lm_head.weight";
  }
  std::filesystem::create_directories(folder);
  REQUIRE(write_safetensors(folder + "/model.safetensors", std::move(tensors)));
  std::ofstream(folder + "/config.json") << kBase.config_text(std::nullopt);
}

// A job on a text beside the folder of the weights.
Result<Job> adapting(const std::string& folder, const std::string& more = "rank = 4") {
  const std::string text = std::filesystem::path(folder).parent_path() / "text";
  std::ofstream(text) << std::string(1000, 'a');
  STARLING_TRY(job, parse_job("[job]\nname = \"t\"\nsteps = 4\n[model]\nkind = \"gpt\"\nfrom = \"" +
                                  folder + "\"\n[lora]\n" + more +
                                  "\n[optimizer]\nkind = \"adamw\"\npeak_rate = 1e-3\n[data]\n"
                                  "kind = \"text\"\npath = \"" +
                                  text + "\"\n",
                              "."));
  STARLING_TRY(name_base(job));
  return std::move(job);
}

struct Passed {
  double loss = 0;
  std::vector<float> gradient;
};

Result<Passed> pass_with(const kernels::Model& model) {
  const Layout layout(model.tensors());
  std::vector<float> parameters(layout.elements());
  REQUIRE(model.initialise(3, layout, parameters));
  const Batch batch = kernels::batch_of(kBase, 2);
  Passed passed{.gradient = std::vector<float>(parameters.size())};
  const auto workspace = model.make_workspace(2);
  STARLING_TRY(result, model.forward_backward(parameters, batch, *workspace, passed.gradient));
  passed.loss = result.loss;
  return passed;
}

}  // namespace

TEST_CASE(
    "base weights: the same values are one base and give the same bits, whatever their files") {
  const DataFolder folder;
  std::vector<Passed> all;
  std::vector<std::string> bases;
  for (const auto& [name, dtype, prefix, spare] : {std::tuple{"plain", Dtype::kF32, false, false},
                                                   {"named", Dtype::kF32, true, false},
                                                   {"halves", Dtype::kBf16, true, false},
                                                   {"spare", Dtype::kF32, false, true}}) {
    const std::string path = folder.path() + "/" + name;
    write_base(path, dtype, prefix, spare);
    const auto read = adapting(path);
    REQUIRE_MESSAGE(read, (read ? "" : read.error().text()));
    const Job& job = read.value();
    bases.push_back(lora_of(job.model).base);
    const auto model = make_model(job).value();
    REQUIRE(open_base(job, *model));
    all.push_back(pass_with(*model).value());
  }
  CHECK(bases[0] == bases[1]);
  CHECK(bases[0] == bases[2]);
  CHECK(bases[0] == bases[3]);
  for (const Passed& passed : all) {
    CHECK(passed.loss == all.front().loss);
    CHECK(kernels::same_bits(passed.gradient, all.front().gradient));
  }
}

TEST_CASE(
    "base weights: other weights than the job's are refused, and changed ones when they are used") {
  const DataFolder folder;
  const std::string path = folder.path() + "/base", file = path + "/model.safetensors";
  write_base(path, Dtype::kF32, false);
  const Job job = adapting(path).value();
  const auto model = make_model(job).value();
  Job unnamed = job;
  std::get<GptSpec>(unnamed.model).lora.base.clear();
  CHECK(has(open_base(unnamed, *model).error().text(), "does not say which weights it adapts"));
  REQUIRE(open_base(job, *model));
  REQUIRE(pass_with(*model));
  {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(-100, std::ios::end);
    out.write("\x11\x22\x33\x3d", 4);
  }
  const auto passed = pass_with(*model);
  REQUIRE_FALSE(passed);
  CHECK(has(passed.error().text(), "was changed while it was in use; reading weights " + file));
  const auto again = make_model(job).value();
  const auto opened = open_base(job, *again);
  REQUIRE_FALSE(opened);
  CHECK(has(opened.error().text(),
            "the weights " + path + " are not those that the job adapts: their digest is "));
  CHECK(state_hash(adapting(path).value()) != state_hash(job));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  CHECK_FALSE(pass_with(*model));
  CHECK_FALSE(adapting(path));
}

TEST_CASE(
    "base weights: another name, mode or file in their place changes nothing of what is mapped") {
  namespace fs = std::filesystem;
  const DataFolder folder;
  const std::string path = folder.path() + "/base", file = path + "/model.safetensors";
  write_base(path, Dtype::kF32, false);
  const Job job = adapting(path).value();
  const auto model = make_model(job).value();
  REQUIRE(open_base(job, *model));
  const Passed first = pass_with(*model).value();
  const auto check_same = [&] {
    const auto passed = pass_with(*model);
    REQUIRE(passed);
    CHECK(kernels::same_bits(passed.value().gradient, first.gradient));
  };
  fs::create_hard_link(file, path + "/again");
  check_same();
  fs::permissions(file, fs::perms::owner_read);
  check_same();
  write_base(folder.path() + "/other", Dtype::kBf16, true);
  fs::rename(folder.path() + "/other/model.safetensors", file);
  check_same();
  // The file that is mapped has its other name alone now, and is written to with its time put back.
  const auto written = fs::last_write_time(path + "/again");
  fs::permissions(path + "/again", fs::perms::owner_all);
  {
    std::fstream out(path + "/again", std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(-5000, std::ios::end);
    out.write("\x11\x22\x33\x3d", 4);
  }
  fs::last_write_time(path + "/again", written);
  CHECK_FALSE(pass_with(*model));
}

TEST_CASE("base weights: what is adapted is said by the job, and reaches its hashes") {
  const DataFolder folder;
  const std::string path = folder.path() + "/base";
  write_base(path, Dtype::kF32, false);
  const Job job = adapting(path).value();
  const LoraSpec lora = lora_of(job.model);
  CHECK(lora.rank == 4);
  CHECK(lora.alpha == 4);
  CHECK(lora.targets == std::vector<std::string>{"c_attn"});
  CHECK(parse_job(format_job(job), "/").value() == job);
  // A text that names the base is believed without it: coordinators hand that to workers.
  std::filesystem::remove_all(path);
  CHECK(parse_job(format_job(job), "/").value() == job);
  CHECK(has(adapting(path).error().text(), "no such file or folder of weights"));
  write_base(path, Dtype::kF32, true);
  const auto of = [&](const std::string& more) { return job_hash(adapting(path, more).value()); };
  CHECK(of("rank = 4") == job_hash(job));
  CHECK(of("rank = 4\nalpha = 4\ntargets = [\"c_attn\"]") == job_hash(job));
  CHECK(of("rank = 4\nalpha = 8") != job_hash(job));
  CHECK(of("rank = 5\nalpha = 4") != job_hash(job));
  CHECK(of("rank = 4\ntargets = [\"c_fc\"]") != job_hash(job));
  CHECK(of("rank = 4\ntargets = [\"c_fc\", \"c_attn\", \"c_fc\"]") ==
        of("rank = 4\ntargets = [\"c_attn\", \"c_fc\"]"));
  const auto refused = [&](const std::string& more) { return adapting(path, more).error().text(); };
  CHECK(has(refused("alpha = 4"), "rank is missing; [lora].rank"));
  CHECK(has(refused("rank = 0"), "rank must be an integer from 1 to 1024, is 0"));
  CHECK(has(refused("rank = 4\nalpha = 0"), "alpha must be a number above 0"));
  CHECK(has(refused("rank = 4\ntargets = []"), "targets must name a module at least"));
  CHECK(has(refused("rank = 4\ntargets = [\"q_proj\"]"),
            "targets must be a list of some of \"attn.c_attn\", \"attn.c_proj\", \"mlp.c_fc\", "
            "\"mlp.c_proj\", or their ends: of all layers, is \"q_proj\""));
  CHECK(has(refused("r = 4"), "unknown key `r`, here it is `rank` in [lora]"));
  CHECK(has(refused("rank = 4\nbase = \"what\""), "base must be 32 hex digits"));
  const auto without = parse_job(
      "[job]\nname = \"t\"\nsteps = 4\n[model]\nkind = \"gpt\"\nlayers = 1\nheads = 1\nwidth = 8\n"
      "context = 8\nvocabulary = 256\n[lora]\nrank = 2\n[optimizer]\nkind = \"adamw\"\npeak_rate = "
      "1e-3\n[data]\n"
      "kind = \"text\"\npath = \"core\"\n",
      ".");
  CHECK(has(without.error().text(), "[model].from must name them; [lora], line "));
  const auto other = parse_job(
      "[job]\nname = \"t\"\nsteps = 4\n[model]\nkind = \"synthetic\"\nparameters = 100000\n"
      "compute_ms = 1.0\n[lora]\nrank = 2\n[optimizer]\nkind = \"adamw\"\npeak_rate = 1e-3\n",
      ".");
  CHECK(has(other.error().text(), "rank does not apply to a model of kind \"synthetic\""));
}

}  // namespace starling::actors
