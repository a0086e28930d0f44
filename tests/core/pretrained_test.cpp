#include "core/formats/pretrained.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/job/job.h"
#include "core/job/models/from_weights.h"
#include "core/job/models/published_model.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"
#include "tests/core/job_text.h"

namespace starling {
namespace {

template <class T>
ByteView view(const std::vector<T>& values) {
  return as_bytes(std::span<const T>(values));
}

std::vector<float> all_of(const PretrainedWeights& weights, const std::string& name) {
  const auto& tensor = weights.tensors().find(name)->second;
  std::vector<float> values(tensor.entry->elements());
  REQUIRE(weights.read(tensor, 0, values));
  return values;
}

std::string opening_error(const std::string& path) {
  const auto weights = PretrainedWeights::open(path);
  if (weights) return "no error";
  CHECK(weights.error().code() == Code::kBadInput);
  return weights.error().text();
}

nlohmann::json config() {
  return {{"model_type", "gpt2"}, {"n_layer", 2},     {"n_head", 3},       {"n_embd", 12},
          {"n_positions", 64},    {"vocab_size", 99}, {"n_inner", nullptr}};
}

Result<GptSpec> gpt2(const std::string& json) {
  STARLING_TRY(config, PublishedConfig::parse(json));
  return published_as<GptSpec>(config);
}

}  // namespace

TEST_CASE("pretrained: F32, BF16 and F16 are read as the floats that their values are") {
  const DataFolder folder;
  const std::string path = folder.write("model.safetensors", "");
  const std::vector<float> whole{1.5f, -2.0f, 0.25f};
  const std::vector<std::uint16_t> bf16{0x3fc0, 0xc000, 0x3e80};
  // 1.5, -2, the smallest number, the largest subnormal one, the largest number, infinity
  const std::vector<std::uint16_t> f16{0x3e00, 0xc000, 0x0001, 0x83ff, 0x7bff, 0xfc00};
  REQUIRE(write_safetensors(path, {{"a", Dtype::kF32, {3}, view(whole)},
                                   {"b", Dtype::kBf16, {3}, view(bf16)},
                                   {"c", Dtype::kF16, {2, 3}, view(f16)},
                                   {"d", Dtype::kU16, {3}, view(bf16)}}));
  for (const std::string& named : {path, folder.path()}) {
    const auto weights = PretrainedWeights::open(named).value();
    CHECK(all_of(weights, "a") == whole);
    CHECK(all_of(weights, "b") == whole);
    CHECK(all_of(weights, "c") == std::vector<float>{1.5f, -2.0f, 0x1p-24f, -1023 * 0x1p-24f,
                                                     65504.0f,
                                                     -std::numeric_limits<float>::infinity()});
    std::vector<float> two(2);
    REQUIRE(weights.read(weights.tensors().at("c"), 1, two));
    CHECK(two == std::vector<float>{-2.0f, 0x1p-24f});
    CHECK(has(weights.read(weights.tensors().at("d"), 0, two).error().text(), "tensor d is U16"));
  }
}

TEST_CASE("pretrained: shards are one set of tensors, which the index names") {
  const DataFolder folder;
  const std::vector<float> one{1, 2}, two{3};
  const auto shard = [&](const char* name, const char* tensor, const std::vector<float>& values) {
    REQUIRE(write_safetensors(folder.write(name, ""),
                              {{tensor, Dtype::kF32, {values.size()}, view(values)}}));
  };
  shard("m-1.safetensors", "a", one);
  shard("m-2.safetensors", "b", two);
  const auto index = [&](const nlohmann::json& map) {
    folder.write("model.safetensors.index.json",
                 nlohmann::json{{"metadata", {{"total_size", 12}}}, {"weight_map", map}}.dump());
    return opening_error(folder.path());
  };
  CHECK(index({{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}}) == "no error");
  const auto weights = PretrainedWeights::open(folder.path()).value();
  CHECK(all_of(weights, "a") == one);
  CHECK(all_of(weights, "b") == two);
  CHECK(has(index({{"a", "m-1.safetensors"}, {"b", "m-1.safetensors"}}), "has no tensor b"));
  CHECK(has(index({{"a", "m-2.safetensors"}, {"b", "m-1.safetensors"}}), "has no tensor a"));
  CHECK(has(index({{"a", "../m-1.safetensors"}}), "no name of a file"));
  CHECK(has(index({{"a", 7}}), "no name of a file"));
  CHECK(has(index({{"a", "m-3.safetensors"}}), "m-3.safetensors"));
  CHECK(has(index(nlohmann::json::object()), "has no weight_map"));
  shard("m-2.safetensors", "a", two);
  CHECK(has(index({{"a", "m-1.safetensors"}, {"c", "m-2.safetensors"}}),
            "which another shard has, too"));
  shard("m-2.safetensors", "x", two);
  CHECK(has(index({{"a", "m-1.safetensors"}}), "no error"));
  CHECK(has(opening_error(folder.path() + "/none"), "none"));
  CHECK(has(opening_error((folder.write("empty/x", ""), folder.path() + "/empty")),
            "has no model.safetensors"));
}

TEST_CASE("pretrained: a file that is changed while it is in use is an error") {
  const DataFolder folder;
  const std::string path = folder.write("model.safetensors", "");
  const std::vector<float> before{1, 2}, after{3, 4};
  REQUIRE(write_safetensors(path, {{"a", Dtype::kF32, {2}, view(before)}}));
  const auto weights = PretrainedWeights::open(path).value();
  CHECK(all_of(weights, "a") == before);
  REQUIRE(write_safetensors(path, {{"a", Dtype::kF32, {2}, view(after)}}));
  std::vector<float> values(2);
  CHECK(
      has(weights.read(weights.tensors().at("a"), 0, values).error().text(), "was changed while"));
}

TEST_CASE("pretrained: a config.json that computes otherwise than GPT-2 does here is refused") {
  const auto error = [](const auto& change) {
    auto json = config();
    change(json);
    const auto parsed = gpt2(json.dump());
    return parsed ? std::string("no error") : parsed.error().text();
  };
  using Json = nlohmann::json;
  CHECK(error([](Json&) {}) == "no error");
  CHECK(error([](Json& j) { j["activation_function"] = "gelu_new", j["n_inner"] = 48; }) ==
        "no error");
  CHECK(has(error([](Json& j) { j["model_type"] = "llama"; }),
            "model_type is \"llama\", expected \"gpt2\""));
  CHECK(has(error([](Json& j) { j.erase("model_type"); }), "expected \"gpt2\""));
  CHECK(has(error([](Json& j) { j["activation_function"] = "relu"; }), "expected \"gelu_new\""));
  CHECK(has(error([](Json& j) { j["layer_norm_epsilon"] = 1e-6; }), "layer_norm_epsilon"));
  CHECK(has(error([](Json& j) { j["scale_attn_by_inverse_layer_idx"] = true; }), "scale_attn_by"));
  CHECK(has(error([](Json& j) { j["tie_word_embeddings"] = false; }), "tie_word_embeddings"));
  CHECK(has(error([](Json& j) { j["n_inner"] = 12; }), "n_inner is 12"));
  CHECK(has(error([](Json& j) { j["is_causal"] = false; }), "is_causal is false"));
  CHECK(has(error([](Json& j) { j["sliding_window"] = 8; }), "sliding_window is 8"));
  CHECK(has(error([](Json& j) { j["attention_chunk_size"] = 8; }), "attention_chunk_size is 8"));
  CHECK(has(error([](Json& j) { j["n_layer"] = 0; }), "n_layer is 0, expected 1 to 1024"));
  CHECK(has(error([](Json& j) { j["n_embd"] = "12"; }), "n_embd is \"12\""));
  CHECK(has(error([](Json& j) { j["vocab_size"] = -1; }), "vocab_size is -1"));
  CHECK(has(error([](Json& j) { j["num_attention_heads"] = 2; }), "which mean the same"));
  CHECK(error([](Json& j) { j["num_attention_heads"] = 3; }) == "no error");
  CHECK(has(error([](Json& j) {
              j["quantization_config"] = {{"bits", 4}};
            }),
            "quantization_config"));
  const auto aliases = gpt2(R"({"model_type":"gpt2","hidden_size":24,"num_hidden_layers":3,
      "num_attention_heads":2,"max_position_embeddings":7})")
                           .value();
  CHECK((aliases.width == 24 && aliases.layers == 3 && aliases.heads == 2 && aliases.context == 7));
  CHECK(has(gpt2("[]").error().text(), "is no JSON object"));
  const auto usual = gpt2(R"({"model_type":"gpt2"})").value();
  CHECK((usual.layers == 12 && usual.width == 768 && usual.vocabulary == 50257 &&
         usual.context == 1024));
}

TEST_CASE(
    "pretrained: a job takes from the config.json what it leaves out, and is held to the rest") {
  const DataFolder folder;
  folder.write("model/config.json", config().dump());
  const std::string text = folder.write("text", std::string(1000, 'a'));
  const auto job = [&](const std::string& keys) {
    return parse_job("[job]\nname = \"x\"\nsteps = 10\n[model]\nkind = \"gpt\"\n" + keys +
                         "\n[optimizer]\nkind = \"adamw\"\npeak_rate = 1e-3\n[data]\nkind = "
                         "\"tokens\"\npath = \"text\"\n",
                     folder.path());
  };
  const auto spec = [&](const std::string& keys) {
    return std::get<GptSpec>(job(keys).value().model);
  };
  const GptSpec whole{2, 3, 12, 64, 99, folder.path() + "/model"};
  CHECK(spec("from = \"model\"") == whole);
  CHECK(spec("from = \"model\"\ncontext = 32").context == 32);
  // It reads no file where the job says all: that of a coordinator may have none.
  CHECK(spec("from = \"none\"\nlayers = 2\nheads = 3\nwidth = 12\ncontext = 64\nvocabulary = 99")
            .from == folder.path() + "/none");
  const auto error = [&](const std::string& keys) { return job(keys).error().text(); };
  CHECK(has(error("from = \"model\"\nlayers = 3"), "layers must be 2 as in the config.json"));
  CHECK(has(error("from = \"model\"\ncontext = 65"), "context must be at most 64"));
  CHECK(has(error("from = \"none\""), "no such file or folder of weights"));
  folder.write("empty/x", "");
  CHECK(has(error("from = \"empty\""), "expected the config.json of a model"));
  CHECK(has(error("from = \"s3://bucket/model\""), "must be a file or folder of this machine"));
  CHECK(has(error("layers = 2"), "is missing"));
  // The path reaches no bit of the result; that there are weights does.
  const Job here = job("from = \"model\"").value();
  Job there = here, drawn = here;
  std::get<GptSpec>(there.model).from = "/elsewhere";
  std::get<GptSpec>(drawn.model).from = "";
  CHECK(job_hash(there) == job_hash(here));
  CHECK(state_hash(there) == state_hash(here));
  CHECK(job_hash(drawn) != job_hash(here));
  CHECK(state_hash(drawn) != state_hash(here));
  CHECK(parse_job(format_job(here), "/").value() == here);
}

}  // namespace starling
