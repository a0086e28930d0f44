#include "core/job/models/llama.h"

#include <algorithm>
#include <string>

#include "core/job/models/from_weights.h"
#include "core/job/section.h"

namespace starling {
namespace {

using job_words::Choice;
using job_words::number_text;

constexpr std::uint32_t kHeadsMax = 1024, kWidthMax = 65536, kContextMax = 65536,
                        kVocabularyMax = 1 << 20;
constexpr double kThetaMin = 1, kThetaMax = 1e12, kFactorMin = 1, kFactorMax = 1e6,
                 kFrequencyMin = 1e-6, kEpsilonMin = 1e-12;

constexpr Choice kScalings[] = {{"none", static_cast<int>(RopeScaling::kNone)},
                                {"linear", static_cast<int>(RopeScaling::kLinear)},
                                {"llama3", static_cast<int>(RopeScaling::kLlama3)}};

std::string word(RopeScaling scaling) {
  return std::string(job_words::word_of(kScalings, static_cast<int>(scaling)));
}

// Reads rotary positions, which newer versions of transformers write as rope_parameters, and older ones as rope_theta and
// rope_scaling. Of a config.json with both, some versions compute with the one and some with the other, so that both
// have to say the same.
Result<> read_rope(const PublishedConfig& config, LlamaSpec& made) {
  const auto theta = [&](const PublishedConfig& of) {
    return of.real("rope_theta", made.rope_theta, kThetaMin, kThetaMax);
  };
  STARLING_TRY(theta(config));
  STARLING_TRY(config.usual("partial_rotary_factor", 1.0));
  const auto said = [&](const char* key) {
    const auto* const member = config.member(key);
    return member != nullptr && member->is_object() && member->empty() ? nullptr : member;
  };
  const auto *const newer = said("rope_parameters"), *const older = said("rope_scaling");
  if (newer == nullptr && older == nullptr) return ok();
  if (newer != nullptr && older != nullptr && *newer != *older)
    return bad_input("its rope_parameters are " + shown_json(*newer) + " and its rope_scaling " +
                     shown_json(*older) + ", which mean the same");
  const char* const key = newer ? "rope_parameters" : "rope_scaling";
  STARLING_TRY(rope, config.object(key));
  for (const auto& [inner, value] : config.member(key)->items())
    if (value.is_object())
      return bad_input("its " + std::string(key) + " has " + inner +
                       " by itself, expected the same positions in all layers");
  for (const char* const twice : {"rope_theta", "original_max_position_embeddings"}) {
    const auto *const inner = rope.member(twice), *const outer = config.member(twice);
    if (inner != nullptr && outer != nullptr && *inner != *outer)
      return bad_input("its " + std::string(twice) + " is " + shown_json(*outer) + ", and " +
                       shown_json(*inner) + " in its " + key);
  }
  STARLING_TRY(theta(rope));
  STARLING_TRY(rope.usual("partial_rotary_factor", 1.0));
  const auto* type = rope.member("rope_type");
  if (type == nullptr) type = rope.member("type");
  if (type == nullptr || *type == "default") return ok();
  if (*type != "linear" && *type != "llama3")
    return bad_input("the rope_type of its " + std::string(key) + " is " + shown_json(*type) +
                     ", expected \"default\", \"linear\" or \"llama3\"");
  made.rope_scaling = *type == "linear" ? RopeScaling::kLinear : RopeScaling::kLlama3;
  for (const char* const needed :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    if (rope.member(needed) == nullptr)
      return bad_input("its " + std::string(key) + " has no " + needed);
    if (made.rope_scaling == RopeScaling::kLinear) break;
  }
  STARLING_TRY(rope.real("factor", made.rope_factor, kFactorMin, kFactorMax));
  if (made.rope_scaling == RopeScaling::kLinear) return ok();
  STARLING_TRY(rope.real("low_freq_factor", made.rope_low_freq_factor, kFrequencyMin, kFactorMax));
  STARLING_TRY(
      rope.real("high_freq_factor", made.rope_high_freq_factor, kFrequencyMin, kFactorMax));
  STARLING_TRY(rope.number("original_max_position_embeddings", nullptr, made.rope_original_context,
                           1, 1 << 24));
  if (made.rope_high_freq_factor <= made.rope_low_freq_factor)
    return bad_input("the high_freq_factor of its " + std::string(key) +
                     " is not above its low_freq_factor");
  return ok();
}

// Of families whose keys mean something else where they are left out.
Result<> check_whole(const PublishedConfig& config) {
  for (const char* const needed :
       {"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size",
        "intermediate_size", "max_position_embeddings", "vocab_size", "rms_norm_eps"})
    if (config.member(needed) == nullptr)
      return bad_input("it has no " + std::string(needed) + ", which means something in \"" +
                       config.model_type() + "\" that is not known here");
  return ok();
}

// Reads the window of all layers; a window of some layers is refused. transformers' passes of a Llama ignore a
// sliding_window, and its generate() does not, so that one is refused as well.
Result<> read_window(const PublishedConfig& config, LlamaSpec& made) {
  if (config.model_type() == "llama") {
    STARLING_TRY(config.usual("sliding_window", nullptr));
    return config.layers_are("full_attention");
  }
  std::uint32_t window = 0;
  STARLING_TRY(config.number("sliding_window", nullptr, window, 1, 1 << 24));
  bool used = config.model_type() == "mistral";
  if (!used) {
    STARLING_TRY(config.flag("use_sliding_window", used));
  }
  if (used && !config.has("sliding_window"))
    return bad_input("it has no sliding_window, which is 4096 in \"" + config.model_type() +
                     "\" then: say it, or null");
  if (!used || window == 0) return config.layers_are("full_attention");
  made.window = std::min(window, kContextMax);
  if (config.model_type() == "mistral" || config.member("layer_types") != nullptr) {
    if (config.layers_are("sliding_attention")) return ok();
    if (config.model_type() == "mistral") return config.layers_are("sliding_attention");
    made.window = 0;
    return config.layers_are("full_attention");
  }
  std::uint32_t whole = 28;  // layers before the first with a window
  STARLING_TRY(config.number("max_window_layers", nullptr, whole, 0, 1 << 24));
  if (whole >= made.layers) made.window = 0;
  if (whole == 0 || whole >= made.layers) return ok();
  return bad_input("its max_window_layers is " + std::to_string(whole) +
                   ", expected 0 or all layers: some would have a window, and others none");
}

}  // namespace

Result<LlamaSpec> LlamaSpec::published(const PublishedConfig& config) {
  const std::pair<const char*, nlohmann::json> usual[] = {
      {"hidden_act", "silu"}, {"attention_bias", false}, {"mlp_bias", false}};
  for (const auto& [key, value] : usual) {
    STARLING_TRY(config.usual(key, value));
  }
  STARLING_TRY(config.plain());
  LlamaSpec made{.layers = 32,
                 .heads = 32,
                 .width = 4096,
                 .feed_forward = 11008,
                 .context = 2048,
                 .vocabulary = 32000,
                 .norm_epsilon = 1e-6};
  const std::string& type = config.model_type();
  if (type != "llama") {
    STARLING_TRY(check_whole(config));
  }
  made.query_key_value_bias = type == "qwen2";
  made.query_key_norm = type == "qwen3";
  STARLING_TRY(config.number("num_hidden_layers", nullptr, made.layers, 1, 1024));
  STARLING_TRY(config.number("num_attention_heads", nullptr, made.heads, 1, kHeadsMax));
  made.key_value_heads = made.heads;
  STARLING_TRY(config.number("num_key_value_heads", nullptr, made.key_value_heads, 1, kHeadsMax));
  STARLING_TRY(config.number("hidden_size", nullptr, made.width, 1, kWidthMax));
  made.head_width = type == "qwen3" ? 128 : made.width / made.heads;
  STARLING_TRY(config.number("head_dim", nullptr, made.head_width, 1, kWidthMax));
  STARLING_TRY(config.number("intermediate_size", nullptr, made.feed_forward, 1, 4 * kWidthMax));
  STARLING_TRY(config.number("max_position_embeddings", nullptr, made.context, 1, 1 << 24));
  made.context = std::min(made.context, kContextMax);
  STARLING_TRY(config.number("vocab_size", nullptr, made.vocabulary, 2, kVocabularyMax));
  STARLING_TRY(config.real("rms_norm_eps", made.norm_epsilon, kEpsilonMin, 1));
  STARLING_TRY(config.flag("tie_word_embeddings", made.tied_embeddings));
  STARLING_TRY(read_rope(config, made));
  STARLING_TRY(read_window(config, made));
  return made;
}

std::optional<Misfit> LlamaSpec::misfit(const LlamaSpec& there) const {
  const auto text = [](std::uint32_t value) { return std::to_string(value); };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const Field fields[] = {
      {"layers", text(layers), text(there.layers)},
      {"heads", text(heads), text(there.heads)},
      {"key_value_heads", text(key_value_heads), text(there.key_value_heads)},
      {"head_width", text(head_width), text(there.head_width)},
      {"width", text(width), text(there.width)},
      {"feed_forward", text(feed_forward), text(there.feed_forward)},
      {"vocabulary", text(vocabulary), text(there.vocabulary)},
      {"norm_epsilon", number_text(norm_epsilon), number_text(there.norm_epsilon)},
      {"tied_embeddings", flag(tied_embeddings), flag(there.tied_embeddings)},
      {"window", text(window), text(there.window)},
      {"query_key_value_bias", flag(query_key_value_bias), flag(there.query_key_value_bias)},
      {"query_key_norm", flag(query_key_norm), flag(there.query_key_norm)},
      {"rope_theta", number_text(rope_theta), number_text(there.rope_theta)},
      {"rope_scaling", word(rope_scaling), word(there.rope_scaling)},
      {"rope_factor", number_text(rope_factor), number_text(there.rope_factor)},
      {"rope_low_freq_factor", number_text(rope_low_freq_factor),
       number_text(there.rope_low_freq_factor)},
      {"rope_high_freq_factor", number_text(rope_high_freq_factor),
       number_text(there.rope_high_freq_factor)},
      {"rope_original_context", text(rope_original_context), text(there.rope_original_context)}};
  for (const Field& field : fields)
    if (field.job != field.there) return misfit_of(field);
  // A shorter context sees less; no tensor depends on it.
  if (context > there.context)
    return misfit_of({"context", text(context), text(there.context), /*at_most=*/true});
  return std::nullopt;
}

std::string LlamaSpec::config_text(std::optional<std::uint32_t> end_token) const {
  const auto [type, architecture] = query_key_norm         ? std::pair("qwen3", "Qwen3ForCausalLM")
                                    : query_key_value_bias ? std::pair("qwen2", "Qwen2ForCausalLM")
                                    : window != 0 ? std::pair("mistral", "MistralForCausalLM")
                                                  : std::pair("llama", "LlamaForCausalLM");
  nlohmann::ordered_json config{{"architectures", {architecture}},
                                {"model_type", type},
                                {"vocab_size", vocabulary},
                                {"max_position_embeddings", context},
                                {"hidden_size", width},
                                {"intermediate_size", feed_forward},
                                {"num_hidden_layers", layers},
                                {"num_attention_heads", heads},
                                {"num_key_value_heads", key_value_heads},
                                {"head_dim", head_width},
                                {"hidden_act", "silu"},
                                {"rms_norm_eps", norm_epsilon},
                                {"rope_theta", rope_theta},
                                {"attention_dropout", 0.0},
                                {"tie_word_embeddings", tied_embeddings}};
  if (!query_key_value_bias) config["attention_bias"] = false;
  if (window != 0) config["sliding_window"] = window;
  if (window != 0 && (query_key_value_bias || query_key_norm)) {
    config["use_sliding_window"] = true;
    config["max_window_layers"] = 0;
  }
  nlohmann::ordered_json scaling;  // null: none
  if (rope_scaling != RopeScaling::kNone)
    scaling = {{"rope_type", word(rope_scaling)}, {"factor", rope_factor}};
  if (rope_scaling == RopeScaling::kLlama3) {
    scaling["low_freq_factor"] = rope_low_freq_factor;
    scaling["high_freq_factor"] = rope_high_freq_factor;
    scaling["original_max_position_embeddings"] = rope_original_context;
  }
  config["rope_scaling"] = scaling;
  return config_text_of(std::move(config), end_token);
}

void LlamaSpec::read(job_words::Section& s, const Job& job, const std::string& base) {
  const auto there = job_words::read_from(
      s, base,
      {"layers", "heads", "key_value_heads", "head_width", "width", "feed_forward", "context",
       "vocabulary", "norm_epsilon", "tied_embeddings", "window", "query_key_value_bias",
       "query_key_norm", "rope_theta", "rope_scaling"},
      *this);
  const bool trained = !from.empty(), fresh = !there;
  s.integer("layers", layers, 1, 1024, !trained);
  s.integer("heads", heads, 1, kHeadsMax, !trained);
  s.integer("width", width, 1, kWidthMax, !trained);
  s.integer("feed_forward", feed_forward, 1, 4 * kWidthMax, !trained);
  s.integer("context", context, 1, kContextMax, !trained);
  s.integer("vocabulary", vocabulary, 2, kVocabularyMax, !trained);
  if (fresh) key_value_heads = heads;
  s.integer("key_value_heads", key_value_heads, 1, kHeadsMax);
  if (fresh) head_width = heads > 0 ? width / heads : 0;
  s.integer("head_width", head_width, 1, kWidthMax);
  s.number("norm_epsilon", norm_epsilon, kEpsilonMin, 1);
  s.boolean("tied_embeddings", tied_embeddings);
  s.integer("window", window, 0, kContextMax);
  s.boolean("query_key_value_bias", query_key_value_bias);
  s.boolean("query_key_norm", query_key_norm);
  s.number("rope_theta", rope_theta, kThetaMin, kThetaMax);
  s.choice("rope_scaling", rope_scaling, kScalings, false);
  const bool scaled = rope_scaling != RopeScaling::kNone;
  const bool llama3 = rope_scaling == RopeScaling::kLlama3;
  if (scaled)
    s.number("rope_factor", rope_factor, kFactorMin, kFactorMax, /*above=*/false, fresh);
  else
    s.refuse({"rope_factor"}, "to rope_scaling \"none\"");
  if (llama3) {
    s.number("rope_low_freq_factor", rope_low_freq_factor, kFrequencyMin, kFactorMax, false, fresh);
    s.number("rope_high_freq_factor", rope_high_freq_factor, kFrequencyMin, kFactorMax, false,
             fresh);
    s.integer("rope_original_context", rope_original_context, 1, 1 << 24, fresh);
  } else {
    s.refuse({"rope_low_freq_factor", "rope_high_freq_factor", "rope_original_context"},
             "to rope_scaling \"" + word(rope_scaling) + "\"");
  }
  if (!s.good()) return;
  if (there) {
    if (const auto misfit = this->misfit(*there)) return s.wrong(misfit->key.c_str(), misfit->why);
  }
  if (heads % key_value_heads != 0)
    return s.wrong("heads", "heads must be a multiple of key_value_heads (" +
                                std::to_string(key_value_heads) + "), is " + std::to_string(heads));
  if (!s.has("head_width") && !there && width % heads != 0)
    return s.wrong("width", "width must be a multiple of heads (" + std::to_string(heads) +
                                ") where head_width is not given, is " + std::to_string(width));
  if (head_width % 2 != 0 || std::uint64_t{head_width} * heads > kWidthMax)
    return s.wrong("head_width", "head_width must be even, and times heads at most " +
                                     std::to_string(kWidthMax) + ", is " +
                                     std::to_string(head_width));
  if (query_key_value_bias && query_key_norm)
    return s.wrong("query_key_norm",
                   "query_key_norm does not go with query_key_value_bias: no family has both");
  if (llama3 && rope_high_freq_factor <= rope_low_freq_factor)
    return s.wrong("rope_high_freq_factor",
                   "rope_high_freq_factor must be above rope_low_freq_factor (" +
                       number_text(rope_low_freq_factor) + "), is " +
                       number_text(rope_high_freq_factor));
  const std::uint64_t c = width, block = c * (2 * query_width() + 2 * key_value_width() +
                                              3 * std::uint64_t{feed_forward} + 2);
  job_words::check_size(s, c * vocabulary * (tied_embeddings ? 1 : 2) + layers * block + c,
                        "width");
  job_words::check_tokens(s, job, context);
}

void LlamaSpec::write(std::ostream& out) const {
  if (!from.empty()) out << "from = " << job_words::quoted(from) << "\n";
  out << "layers = " << layers << "\nheads = " << heads << "\nkey_value_heads = " << key_value_heads
      << "\nhead_width = " << head_width << "\nwidth = " << width
      << "\nfeed_forward = " << feed_forward << "\ncontext = " << context
      << "\nvocabulary = " << vocabulary << "\nnorm_epsilon = " << number_text(norm_epsilon)
      << "\ntied_embeddings = " << (tied_embeddings ? "true" : "false") << "\nwindow = " << window
      << "\nquery_key_value_bias = " << (query_key_value_bias ? "true" : "false")
      << "\nquery_key_norm = " << (query_key_norm ? "true" : "false")
      << "\nrope_theta = " << number_text(rope_theta) << "\nrope_scaling = \"" << word(rope_scaling)
      << "\"\n";
  if (rope_scaling == RopeScaling::kNone) return;
  out << "rope_factor = " << number_text(rope_factor) << "\n";
  if (rope_scaling != RopeScaling::kLlama3) return;
  out << "rope_low_freq_factor = " << number_text(rope_low_freq_factor)
      << "\nrope_high_freq_factor = " << number_text(rope_high_freq_factor)
      << "\nrope_original_context = " << rope_original_context << "\n";
}

void LlamaSpec::drop_idle() {
  if (!from.empty())
    from = "/";  // where the weights lie reaches no bit, and that there are some does
}

}  // namespace starling
