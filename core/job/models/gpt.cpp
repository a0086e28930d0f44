#include "core/job/models/gpt.h"

#include <string>

#include "core/job/models/from_weights.h"
#include "core/job/section.h"

namespace starling {

Result<GptSpec> GptSpec::published(const PublishedConfig& config) {
  const std::pair<const char*, nlohmann::json> usual[] = {
      {"activation_function", "gelu_new"}, {"layer_norm_epsilon", 1e-5},
      {"scale_attn_weights", true},        {"scale_attn_by_inverse_layer_idx", false},
      {"reorder_and_upcast_attn", false},  {"add_cross_attention", false},
      {"tie_word_embeddings", true}};
  for (const auto& [key, value] : usual) {
    STARLING_TRY(config.usual(key, value));
  }
  STARLING_TRY(config.plain());
  STARLING_TRY(config.usual("sliding_window", nullptr));
  STARLING_TRY(config.layers_are("full_attention"));
  GptSpec made{.layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257};
  STARLING_TRY(config.number("n_layer", "num_hidden_layers", made.layers, 1, 1024));
  STARLING_TRY(config.number("n_head", "num_attention_heads", made.heads, 1, 1024));
  STARLING_TRY(config.number("n_embd", "hidden_size", made.width, 1, 65536));
  STARLING_TRY(config.number("n_positions", "max_position_embeddings", made.context, 1, 65536));
  STARLING_TRY(config.number("vocab_size", nullptr, made.vocabulary, 1, 1 << 20));
  const auto* const inner = config.member("n_inner");
  if (inner != nullptr && *inner != 4 * made.width)
    return bad_input("its n_inner is " + shown_json(*inner) + ", expected 4 times n_embd");
  return made;
}

std::optional<Misfit> GptSpec::misfit(const GptSpec& there) const {
  const auto text = [](std::uint32_t value) { return std::to_string(value); };
  const Field fields[] = {{"layers", text(layers), text(there.layers)},
                          {"heads", text(heads), text(there.heads)},
                          {"width", text(width), text(there.width)},
                          {"vocabulary", text(vocabulary), text(there.vocabulary)}};
  for (const Field& field : fields)
    if (field.job != field.there) return misfit_of(field);
  // Positions beyond a shorter context are left out.
  if (context > there.context)
    return misfit_of({"context", text(context), text(there.context), /*at_most=*/true});
  return std::nullopt;
}

std::string GptSpec::config_text(std::optional<std::uint32_t> end_token) const {
  return config_text_of({{"architectures", {"GPT2LMHeadModel"}},
                         {"model_type", "gpt2"},
                         {"vocab_size", vocabulary},
                         {"n_positions", context},
                         {"n_ctx", context},
                         {"n_embd", width},
                         {"n_layer", layers},
                         {"n_head", heads},
                         {"activation_function", "gelu_new"},
                         {"layer_norm_epsilon", 1e-5},
                         {"resid_pdrop", 0.0},
                         {"embd_pdrop", 0.0},
                         {"attn_pdrop", 0.0},
                         {"tie_word_embeddings", true}},
                        end_token);
}

void GptSpec::read(job_words::Section& s, const Job& job, const std::string& base) {
  const auto there =
      job_words::read_from(s, base, {"layers", "heads", "width", "context", "vocabulary"}, *this);
  const bool trained = !from.empty();
  s.integer("layers", layers, 1, 1024, !trained);
  s.integer("heads", heads, 1, 1024, !trained);
  s.integer("width", width, 1, 65536, !trained);
  s.integer("context", context, 1, 65536, !trained);
  s.integer("vocabulary", vocabulary, 2, 1 << 20, !trained);
  if (!s.good()) return;
  if (there) {
    if (const auto misfit = this->misfit(*there)) return s.wrong(misfit->key.c_str(), misfit->why);
  }
  if (width % heads != 0) {
    s.wrong("width", "width must be a multiple of heads (" + std::to_string(heads) + "), is " +
                         std::to_string(width));
  }
  const std::uint64_t c = width;
  const std::uint64_t parameters =
      (std::uint64_t{vocabulary} + context) * c + layers * (12 * c * c + 13 * c) + 2 * c;
  job_words::check_size(s, parameters, "width");
  job_words::check_tokens(s, job, context);
}

void GptSpec::write(std::ostream& out) const {
  if (!from.empty()) out << "from = " << job_words::quoted(from) << "\n";
  out << "layers = " << layers << "\nheads = " << heads << "\nwidth = " << width
      << "\ncontext = " << context << "\nvocabulary = " << vocabulary << "\n";
}

void GptSpec::drop_idle() {
  if (!from.empty())
    from = "/";  // where the weights lie reaches no bit, and that there are some does
}

}  // namespace starling
