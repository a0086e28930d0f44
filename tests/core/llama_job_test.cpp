// [model] of kind "llama": what a job file says, what a config.json says, and what is refused.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/job/job.h"
#include "core/job/models/published_model.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"
#include "tests/core/job_text.h"

namespace starling {
namespace {

using OrderedJson = nlohmann::ordered_json;

const std::string kLlamaModel =
    "kind = \"llama\"\nlayers = 2\nheads = 4\nwidth = 64\nfeed_forward = 96\ncontext = 32\n"
    "vocabulary = 256\n";
const std::string kGptModel =
    "kind = \"gpt\"\nlayers = 2\nheads = 4\nwidth = 64\ncontext = 32\nvocabulary = 256\n";
const std::string kScaled =
    "rope_scaling = \"llama3\"\nrope_factor = 8\nrope_low_freq_factor = 1\n"
    "rope_high_freq_factor = 4\nrope_original_context = 16\n";

std::string with(const std::string& more) {
  return replaced(kGood, kGptModel, kLlamaModel + more);
}

LlamaSpec spec_of(const std::string& more) {
  return std::get<LlamaSpec>(parse_job(with(more), ".").value().model);
}

OrderedJson config() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"hidden_size", 48},      {"head_dim", 10},
          {"intermediate_size", 80},  {"vocab_size", 99},       {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-6},     {"rope_theta", 500000.0}, {"tie_word_embeddings", true}};
}

Result<ModelSpec> published(const OrderedJson& json) {
  STARLING_TRY(config, PublishedConfig::parse(json.dump()));
  return published_model(config, "/weights");
}

template <class Change>
std::string config_error(const Change& change) {
  OrderedJson json = config();
  change(json);
  const auto made = published(json);
  return made ? "no error" : made.error().text();
}

TEST_CASE("llama: tokens of a vocabulary that 16 bits have no room for are data like others") {
  const DataFolder folder;
  folder.write("tokens.bin", "");
  const auto of = [&](const std::string& vocabulary) {
    return replaced(replaced(with(""), "vocabulary = 256", "vocabulary = " + vocabulary),
                    "kind = \"text\"\npath = \"core\"",
                    "kind = \"tokens\"\npath = \"" + folder.path() + "\"");
  };
  for (const char* const vocabulary : {"65536", "65537", "128256"})
    CHECK(error_of(of(vocabulary)) == "no error");
}

TEST_CASE("llama: what a job leaves out is as in the first Llama") {
  const LlamaSpec spec = spec_of("");
  CHECK(spec == LlamaSpec{.layers = 2,
                          .heads = 4,
                          .key_value_heads = 4,
                          .head_width = 16,
                          .width = 64,
                          .feed_forward = 96,
                          .context = 32,
                          .vocabulary = 256});
  CHECK(spec.norm_epsilon == 1e-5);
  CHECK(spec.rope_theta == 10000);
  CHECK_FALSE(spec.tied_embeddings);
  const LlamaSpec other = spec_of(
      "key_value_heads = 1\nhead_width = 6\nnorm_epsilon = 1e-6\ntied_embeddings = true\n"
      "rope_theta = 5e5\n" +
      kScaled);
  CHECK(other.key_value_heads == 1);
  CHECK(other.query_width() == 24);
  CHECK(other.key_value_width() == 6);
  CHECK(other.rope_scaling == RopeScaling::kLlama3);
  CHECK(other.rope_original_context == 16);
}

TEST_CASE("llama: a job's text and hash have all that reaches a bit") {
  const std::string variants[] = {"",
                                  "key_value_heads = 2\n",
                                  "head_width = 8\n",
                                  "norm_epsilon = 1e-6\n",
                                  "tied_embeddings = true\n",
                                  "rope_theta = 20000\n",
                                  "window = 7\n",
                                  "window = 8\n",
                                  "query_key_value_bias = true\n",
                                  "query_key_norm = true\n",
                                  "rope_scaling = \"linear\"\nrope_factor = 2\n",
                                  "rope_scaling = \"linear\"\nrope_factor = 3\n",
                                  kScaled,
                                  replaced(kScaled, "rope_factor = 8", "rope_factor = 9"),
                                  replaced(kScaled, "low_freq_factor = 1", "low_freq_factor = 2"),
                                  replaced(kScaled, "high_freq_factor = 4", "high_freq_factor = 5"),
                                  replaced(kScaled, "context = 16", "context = 17")};
  std::vector<std::uint64_t> hashes;
  for (const std::string& variant : variants) {
    CAPTURE(variant);
    const Job job = parse_job(with(variant), ".").value();
    CHECK(parse_job(format_job(job), ".").value() == job);
    for (const std::uint64_t hash : hashes) CHECK(hash != job_hash(job));
    hashes.push_back(job_hash(job));
  }
}

TEST_CASE("llama: a model that there cannot be is refused with the key") {
  const auto error = [](const std::string& more) { return error_of(with(more)); };
  CHECK(error("") == "no error");
  CHECK(
      has(error("key_value_heads = 3\n"), "heads must be a multiple of key_value_heads (3), is 4"));
  CHECK(
      has(error("key_value_heads = 8\n"), "heads must be a multiple of key_value_heads (8), is 4"));
  CHECK(has(error("head_width = 7\n"), "head_width must be even"));
  CHECK(has(error("head_width = 65536\n"), "head_width must be even, and times heads at most"));
  CHECK(has(error("norm_epsilon = 0\n"), "norm_epsilon must be a number from 1e-12"));
  CHECK(has(error("rope_theta = 0.5\n"), "rope_theta must be a number from 1"));
  CHECK(has(error("rope_scaling = \"yarn\"\n"), "one of \"none\", \"linear\", \"llama3\""));
  CHECK(has(error("window = -1\n"), "window must be an integer from 0"));
  CHECK(has(error("query_key_value_bias = true\nquery_key_norm = true\n"),
            "query_key_norm does not go with query_key_value_bias"));
  CHECK(has(error("rope_factor = 2\n"), "rope_factor does not apply to rope_scaling \"none\""));
  CHECK(has(error("rope_scaling = \"linear\"\n"), "rope_factor is missing"));
  CHECK(has(error("rope_scaling = \"linear\"\nrope_factor = 2\nrope_original_context = 4\n"),
            "rope_original_context does not apply to rope_scaling \"linear\""));
  CHECK(has(error(replaced(kScaled, "high_freq_factor = 4", "high_freq_factor = 1")),
            "rope_high_freq_factor must be above rope_low_freq_factor (1.0), is 1.0"));
  CHECK(has(error("sizes = [3]\n"), "sizes does not apply to kind \"llama\""));
  CHECK(has(error_of(replaced(with(""), "kind = \"llama\"", "kind = \"mistral\"")),
            "Mistral is kind = \"llama\" with `window`"));
  CHECK(has(error("head_dim = 8\n"), "unknown key `head_dim`, here it is `head_width` in [model]"));
  CHECK(has(error_of(replaced(kGood, "width = 64", "width = 64\nrope_theta = 1e4")),
            "rope_theta does not apply to kind \"gpt\""));
  CHECK(has(error_of(replaced(with(""), "width = 64", "width = 66")),
            "width must be a multiple of heads (4) where head_width is not given"));
  CHECK(has(error_of(replaced(with(""), "feed_forward = 96\n", "")), "feed_forward is missing"));
}

TEST_CASE("llama: a config.json of transformers is the model that it computes") {
  const LlamaSpec plain{.layers = 2,
                        .heads = 4,
                        .key_value_heads = 2,
                        .head_width = 10,
                        .width = 48,
                        .feed_forward = 80,
                        .context = 64,
                        .vocabulary = 99,
                        .norm_epsilon = 1e-6,
                        .tied_embeddings = true,
                        .rope_theta = 500000,
                        .from = "/weights"};
  CHECK(std::get<LlamaSpec>(published(config()).value()) == plain);
  // The newer place of rotary positions.
  OrderedJson newer = config();
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  CHECK(std::get<LlamaSpec>(published(newer).value()) == plain);
  OrderedJson linear = config();
  linear["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  LlamaSpec halved = plain;
  halved.rope_scaling = RopeScaling::kLinear, halved.rope_factor = 2;
  CHECK(std::get<LlamaSpec>(published(linear).value()) == halved);
  OrderedJson third = config();
  third["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", 8.0},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 8192}};
  LlamaSpec scaled = plain;
  scaled.rope_scaling = RopeScaling::kLlama3, scaled.rope_factor = 8;
  scaled.rope_low_freq_factor = 1, scaled.rope_high_freq_factor = 4;
  scaled.rope_original_context = 8192;
  CHECK(std::get<LlamaSpec>(published(third).value()) == scaled);
  // What is left out is as transformers has it.
  const auto usual = std::get<LlamaSpec>(published({{"model_type", "llama"}}).value());
  CHECK((usual.layers == 32 && usual.key_value_heads == 32 && usual.head_width == 128 &&
         usual.feed_forward == 11008 && usual.norm_epsilon == 1e-6 && !usual.tied_embeddings));
  // A text of ours is read back.
  for (LlamaSpec spec : {plain, halved, scaled}) {
    const auto text = spec.config_text(7);
    CHECK(OrderedJson::parse(text)["eos_token_id"] == 7);
    CHECK(std::get<LlamaSpec>(published(OrderedJson::parse(text)).value()) == spec);
  }
}

TEST_CASE("llama: Mistral, Qwen2 and Qwen3 are a window, biases and norms") {
  const auto of = [](const char* type, const OrderedJson& more) {
    OrderedJson json = config();
    json["model_type"] = type;
    if (!more.empty()) json.update(more);
    return json;
  };
  const auto spec = [&](const char* type, const OrderedJson& more) {
    return std::get<LlamaSpec>(published(of(type, more)).value());
  };
  const auto error = [&](const char* type, const OrderedJson& more) {
    return published(of(type, more)).error().text();
  };
  const OrderedJson on{{"use_sliding_window", true}, {"sliding_window", 16}};
  const auto with_types = [&](const OrderedJson& types) {
    OrderedJson json = on;
    json["layer_types"] = types;
    return json;
  };
  // Which transformers leaves out of a pass, and not of what it generates.
  CHECK(has(error("llama", {{"sliding_window", 16}}), "its sliding_window is 16, expected null"));
  CHECK(has(error("llama", {{"layer_types", {"sliding_attention"}}}), "its layer_types are"));
  CHECK(has(error("mistral", {{"sliding_window", 16}, {"layer_types", {"full_attention"}}}),
            "its layer_types are [\"full_attention\"], expected \"sliding_attention\""));
  CHECK(spec("mistral", {{"sliding_window", 16}}).window == 16);
  CHECK(spec("mistral", {{"sliding_window", nullptr}}).window == 0);
  CHECK(has(error("mistral", {}), "it has no sliding_window, which is 4096"));
  CHECK(has(error("qwen3", {{"use_sliding_window", true}}), "it has no sliding_window"));
  CHECK(has(error("qwen3", with_types(OrderedJson::array())), "its layer_types are []"));
  CHECK(spec("qwen2", {}).query_key_value_bias);
  CHECK_FALSE(spec("qwen2", {}).query_key_norm);
  CHECK(spec("qwen3", {}).query_key_norm);
  CHECK(spec("qwen2", {{"sliding_window", 16}}).window == 0);
  CHECK(spec("qwen2", on).window == 0);  // its first 28 layers have none
  CHECK(spec("qwen3", with_types({"sliding_attention", "sliding_attention"})).window == 16);
  CHECK(spec("qwen3", with_types({"full_attention", "full_attention"})).window == 0);
  OrderedJson from_first = on;
  from_first["max_window_layers"] = 0;
  CHECK(spec("qwen2", from_first).window == 16);
  from_first["max_window_layers"] = 1;
  CHECK(has(error("qwen2", from_first), "its max_window_layers is 1, expected 0 or all layers"));
  CHECK(has(error("qwen3", with_types({"sliding_attention", "full_attention"})),
            "its layer_types are [\"sliding_attention\""));
  CHECK(has(error("qwen3", with_types({"linear_attention", "linear_attention"})),
            "its layer_types are [\"linear_attention\""));
  CHECK(has(error("qwen3", {{"attention_bias", true}}), "attention_bias is true"));
  OrderedJson less = of("mistral", {});
  less.erase("num_key_value_heads");  // 8 in Mistral
  CHECK(has(published(less).error().text(), "it has no num_key_value_heads"));
  OrderedJson wide = of("qwen3", {});
  wide.erase("head_dim");
  CHECK(std::get<LlamaSpec>(published(wide).value()).head_width == 128);
  // A text of ours is read back, and says which family it is.
  for (const auto& [type, more] :
       {std::pair("mistral", OrderedJson{{"sliding_window", 16}}),
        {"qwen2", OrderedJson()},
        {"qwen3", OrderedJson()},
        {"qwen2", with_types({"sliding_attention", "sliding_attention"})}}) {
    const LlamaSpec there = spec(type, more);
    const OrderedJson text = OrderedJson::parse(there.config_text(std::nullopt));
    CHECK(text["model_type"] == type);
    CHECK(std::get<LlamaSpec>(published(text).value()) == there);
  }
}

TEST_CASE("llama: a config.json that computes otherwise is refused") {
  CHECK(config_error([](OrderedJson&) {}) == "no error");
  CHECK(has(config_error([](OrderedJson& j) { j["model_type"] = "bloom"; }),
            "its model_type is \"bloom\", expected one of \"gpt2\", \"llama\", \"mistral\", "
            "\"qwen2\", \"qwen3\""));
  CHECK(has(config_error([](OrderedJson& j) { j.erase("model_type"); }), "its model_type is \"\""));
  CHECK(has(config_error([](OrderedJson& j) { j["hidden_act"] = "gelu"; }), "expected \"silu\""));
  CHECK(has(config_error([](OrderedJson& j) { j["attention_bias"] = true; }),
            "attention_bias is true"));
  CHECK(has(config_error([](OrderedJson& j) { j["mlp_bias"] = true; }), "mlp_bias is true"));
  CHECK(has(config_error([](OrderedJson& j) { j["rms_norm_eps"] = 0; }), "rms_norm_eps is 0"));
  CHECK(has(config_error([](OrderedJson& j) { j["tie_word_embeddings"] = 1; }),
            "expected true or false"));
  CHECK(has(config_error([](OrderedJson& j) { j["head_dim"] = 0; }), "head_dim is 0"));
  CHECK(has(config_error([](OrderedJson& j) { j["rope_scaling"] = "linear"; }),
            "expected an object"));
  CHECK(has(config_error([](OrderedJson& j) {
              j["rope_scaling"] = {{"type", "yarn"}, {"factor", 2.0}};
            }),
            "the rope_type of its rope_scaling is \"yarn\""));
  CHECK(has(config_error([](OrderedJson& j) {
              j["rope_scaling"] = {{"type", "linear"}};
            }),
            "its rope_scaling has no factor"));
  CHECK(has(config_error([](OrderedJson& j) {
              j["rope_scaling"] = {{"type", "llama3"}, {"factor", 2.0}};
            }),
            "its rope_scaling has no low_freq_factor"));
  // A config.json with both rope_parameters and rope_scaling, or a number inside and outside of them: some versions of
  // transformers compute with the one, some with the other.
  const auto twice = [](const OrderedJson& newer, const OrderedJson& older) {
    return config_error([&](OrderedJson& j) {
      j.erase("rope_theta");
      j["rope_parameters"] = newer;
      j["rope_scaling"] = older;
    });
  };
  const OrderedJson plain{{"rope_type", "default"}, {"rope_theta", 500.0}};
  const OrderedJson linear{{"rope_type", "linear"}, {"factor", 2.0}};
  CHECK(has(twice(plain, linear), "and its rope_scaling {"));
  CHECK(twice(linear, linear) == "no error");
  CHECK(twice(plain, nullptr) == "no error");
  CHECK(twice(OrderedJson::object(), linear) == "no error");
  CHECK(has(config_error([&](OrderedJson& j) { j["rope_parameters"] = plain; }),
            "its rope_theta is 500000.0, and 500.0 in its rope_parameters"));
  CHECK(has(config_error([](OrderedJson& j) {
              j["rope_scaling"] = {{"rope_type", "llama3"},
                                   {"factor", 8.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 32}};
              j["original_max_position_embeddings"] = 1024;
            }),
            "its original_max_position_embeddings is 1024, and 32 in its rope_scaling"));
  CHECK(has(config_error([](OrderedJson& j) { j["rope_theta"] = 0.5; }),
            "expected a number from 1.0"));
  CHECK(has(config_error([](OrderedJson& j) {
              j["rope_scaling"] = {{"type", "linear"}, {"factor", 1e-300}};
            }),
            "its factor is 1e-300"));
  CHECK(has(config_error([](OrderedJson& j) {
              j.erase("rope_theta");
              j["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
            }),
            "its rope_parameters has full_attention by itself"));
  CHECK(has(config_error([](OrderedJson& j) { j["is_causal"] = false; }), "is_causal is false"));
  CHECK(has(config_error([](OrderedJson& j) { j["attention_chunk_size"] = 8; }), "expected null"));
  CHECK(has(config_error([](OrderedJson& j) {
              j["per_layer_config"] = {{"0", {{"rms_norm_eps", 0.5}}}};
            }),
            "its per_layer_config is"));
  CHECK(has(config_error([](OrderedJson& j) { j["partial_rotary_factor"] = 0.5; }),
            "partial_rotary_factor is 0.5"));
  CHECK(has(config_error([](OrderedJson& j) {
              j["quantization_config"] = {{"bits", 4}};
            }),
            "quantization_config"));
}

TEST_CASE("llama: a job takes from the config.json what it leaves out, and is held to the rest") {
  const DataFolder folder;
  OrderedJson json = config();
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  folder.write("model/config.json", json.dump());
  folder.write("text", std::string(1000, 'a'));
  const auto job = [&](const std::string& keys) {
    return parse_job(
        replaced(replaced(kGood, kGptModel, "kind = \"llama\"\n" + keys),
                 "kind = \"text\"\npath = \"core\"", "kind = \"tokens\"\npath = \"text\""),
        folder.path());
  };
  const auto spec = [&](const std::string& keys) {
    return std::get<LlamaSpec>(job(keys).value().model);
  };
  const LlamaSpec whole = spec("from = \"model\"\n");
  CHECK(whole.key_value_heads == 2);
  CHECK(whole.head_width == 10);
  CHECK(whole.rope_scaling == RopeScaling::kLinear);
  CHECK(whole.rope_factor == 2);
  CHECK(whole.from == folder.path() + "/model");
  CHECK(spec("from = \"model\"\ncontext = 32\n").context == 32);
  const auto error = [&](const std::string& keys) {
    return job("from = \"model\"\n" + keys).error().text();
  };
  CHECK(has(error("context = 65\n"), "context must be at most 64 as in the config.json"));
  CHECK(has(error("heads = 2\n"), "heads must be 4 as in the config.json of from, is 2"));
  CHECK(has(error("rope_theta = 1e4\n"), "rope_theta must be 5e+05 as in the config.json"));
  CHECK(has(error("rope_factor = 3\n"), "rope_factor must be 2.0 as in the config.json"));
  CHECK(has(error("rope_scaling = \"none\"\n"), "rope_scaling must be linear as in"));
  CHECK(has(error("window = 5\n"), "window must be 0 as in the config.json"));
  CHECK(has(error("query_key_norm = true\n"), "query_key_norm must be false as in"));
  CHECK(has(error("tied_embeddings = false\n"), "tied_embeddings must be true as in"));
  CHECK(has(error("key_value_heads = 4\n"), "key_value_heads must be 2 as in"));
  // A job that says all reads no file: that of a coordinator may have none.
  Job moved = job("from = \"model\"\n").value();
  std::get<LlamaSpec>(moved.model).from = "/none";
  CHECK(parse_job(format_job(moved), ".").value() == moved);
  CHECK(job_hash(moved) == job_hash(job("from = \"model\"\n").value()));
  // Weights of the other family.
  folder.write("gpt/config.json", R"({"model_type":"gpt2"})");
  CHECK(has(job("from = \"gpt\"\n").error().text(),
            "its model_type is \"gpt2\", expected \"llama\", \"mistral\""));
  CHECK(has(job("from = \"gpt\"\n").error().text(), "it is a model of kind = \"gpt\""));
}

}  // namespace
}  // namespace starling
