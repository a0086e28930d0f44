#include "tools/starling/text_writer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "actors/make_model.h"
#include "actors/pretrained.h"
#include "core/base/check.h"
#include "core/base/file_system.h"
#include "core/base/json.h"
#include "core/job/models/adapter_config.h"
#include "core/job/models/published_model.h"
#include "core/text/chat.h"
#include "core/text/pattern.h"
#include "core/text/tokenizer.h"
#include "core/text/written_text.h"
#include "kernels/models/decoder.h"
#include "kernels/models/model.h"
#include "tools/starling/adapted.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kByteVocabulary = 256;

// What tokens are as text: a tokenizer's, or bytes.
class Language {
 public:
  // `chosen`: a tokenizer's place, `chat`: a form's name; empty: as the folder has them.
  static Result<Language> read(const std::string& chosen, const std::string& folder,
                               const std::string& chat, std::int64_t vocabulary) {
    Language language;
    const bool beside = !tokenizer_files(folder).empty();
    if (chosen.empty() && !beside) {
      if (!chat.empty())
        return bad_input("--chat needs a tokenizer, and bytes have none; " + folder);
      if (vocabulary == kByteVocabulary) return language;
      return bad_input(
          "no tokenizer.json, or vocab.json and merges.txt, is beside the model, whose vocabulary "
          "is " +
          std::to_string(vocabulary) + "; --tokenizer says where they are; " + folder);
    }
    STARLING_TRY(file, read_tokenizer(chosen.empty() ? folder : chosen));
    language.tokenizer_ = std::make_unique<Tokenizer>(std::move(file));
    if (language.tokenizer_->vocabulary() > vocabulary)
      return bad_input("the tokenizer has " + std::to_string(language.tokenizer_->vocabulary()) +
                       " tokens, the model " + std::to_string(vocabulary) +
                       ": it is another one's; " + folder);
    language.chat_ =
        chat.empty() ? form_beside(chosen.empty() ? folder : chosen) : find_chat_form(chat);
    STARLING_TRY(language.has_marks());
    return language;
  }

  // The token that ends a message; none: no form of chats is known.
  std::optional<std::uint32_t> message_end() const {
    if (chat_ == nullptr) return std::nullopt;
    return tokenizer_->find(chat_->end);
  }
  Result<std::vector<std::uint32_t>> encode_chat(const nlohmann::json& messages) const {
    if (chat_ == nullptr)
      return bad_input(
          "no form of chats is known of the model: its tokenizer_config.json has none that "
          "starling tokenize --chat writes; --chat says which it was trained on");
    STARLING_TRY(stretches, chat_prompt(messages, *chat_));
    std::vector<std::uint32_t> tokens;
    Encoder encoder(*tokenizer_, Marks::kText);
    for (const Stretch& stretch : stretches) {
      if (stretch.mark) {
        tokens.push_back(tokenizer_->find(stretch.text).value());
        continue;
      }
      if (auto encoded = encoder.encode(stretch.text, tokens); !encoded)
        return std::move(encoded).error().in("a message, with its role before it");
    }
    return tokens;
  }

  std::uint32_t vocabulary() const {
    return tokenizer_ ? tokenizer_->vocabulary() : kByteVocabulary;
  }
  Result<std::vector<std::uint32_t>> encode(const std::string& text) const {
    std::vector<std::uint32_t> tokens;
    if (!tokenizer_) {
      tokens.assign(reinterpret_cast<const unsigned char*>(text.data()),
                    reinterpret_cast<const unsigned char*>(text.data()) + text.size());
      return tokens;
    }
    // A prompt is the user's own, who may set marks.
    Encoder encoder(*tokenizer_, Marks::kTokens);
    STARLING_TRY(encoder.encode(text, tokens));
    return tokens;
  }
  std::string decode(std::uint32_t token) const {
    return tokenizer_ ? tokenizer_->decode({&token, 1}) : std::string(1, static_cast<char>(token));
  }
  std::optional<std::uint32_t> end() const {
    if (!tokenizer_) return std::nullopt;
    return tokenizer_->end_of_document();
  }
  // Where a text without a prompt begins: behind another document, or at the start of a line.
  std::uint32_t beginning() const { return end().value_or('\n'); }

 private:
  // That of the tokenizer's settings in a folder, or beside a file.
  static const ChatForm* form_beside(const std::string& place) {
    constexpr std::uint64_t kBytesMax = 16u << 20;
    std::error_code error;
    const fs::path folder =
        fs::is_directory(place, error) ? fs::path(place) : fs::path(place).parent_path();
    const std::string settings = (folder / kTokenizerConfig).string();
    if (!is_file(settings, "settings") || fs::file_size(settings, error) > kBytesMax)
      return nullptr;
    std::ifstream file(settings, std::ios::binary);
    const auto json = parse_json(std::string{std::istreambuf_iterator<char>(file), {}});
    if (!json || !json.value().is_object()) return nullptr;
    const auto jinja = json.value().find("chat_template");
    if (jinja == json.value().end() || !jinja->is_string()) return nullptr;
    return chat_form_of_template(jinja->get_ref<const std::string&>());
  }
  Result<> has_marks() const {
    if (chat_ == nullptr) return ok();
    for (const std::string& mark : marks_of(*chat_))
      if (!tokenizer_->find(mark))
        return bad_input("the tokenizer has no token " + mark + ", with which chats of the form " +
                         std::string(chat_->name) + " are written");
    return ok();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  const ChatForm* chat_ = nullptr;  // none: no form is known
};

// A model whose weights are in memory.
struct Loaded {
  ModelSpec spec;
  std::set<std::uint32_t> ends;  // tokens
  ModelInput input;
  std::unique_ptr<Layout> layout;
  std::vector<float> parameters;
};

// Of adapters and their base, which lies at `base`.
Result<Loaded> load_adapted(const std::string& folder, const std::string& base,
                            const std::string& isa) {
  STARLING_TRY(whole, read_adapted(folder, base, isa));
  auto ends = end_tokens_of(base);
  ends.merge(end_tokens_of(folder));
  return Loaded{.spec = whole.spec,
                .ends = std::move(ends),
                .input = *input_of(whole.spec),
                .layout = std::move(whole.layout),
                .parameters = std::move(whole.parameters)};
}

Result<Loaded> load(const std::string& path, const std::string& isa) {
  Loaded loaded;
  std::error_code error;
  if (fs::exists(path + "/events.jsonl", error) && !fs::exists(path + "/config.json", error))
    return bad_input(
        "no model is there yet: the run has not come to its end; starling export makes one of a "
        "checkpoint; " +
        path);
  STARLING_TRY(config, PublishedConfig::read(path));
  auto spec = published_model(config, path);
  if (!spec) return std::move(spec).error().in("the config.json of " + path);
  loaded.spec = std::move(spec).value();
  loaded.input = *input_of(loaded.spec);
  loaded.ends = end_tokens_of(path);
  Job job;
  job.model = loaded.spec;
  job.isa = isa;
  STARLING_TRY(model, actors::make_model(job));
  // Before memory is taken for what may be no such model.
  STARLING_TRY(actors::check_weights(job, *model));
  loaded.layout = std::make_unique<Layout>(model->tensors());
  loaded.parameters.resize(loaded.layout->elements());
  STARLING_TRY(model->initialise(/*seed=*/0, *loaded.layout, loaded.parameters));
  return loaded;
}

// The last tokens that the model can look at, with room for further ones: half of its context once that is full.
std::span<const std::uint32_t> seen(std::span<const std::uint32_t> all, std::uint32_t context) {
  if (all.size() <= context) return all;
  return all.last(std::max<std::size_t>(1, context / 2));
}

class ModelWriter : public TextWriter {
 public:
  ModelWriter(Loaded loaded, Language language, const kernels::KernelTable& kernels)
      : loaded_(std::move(loaded)), language_(std::move(language)) {
    decoder_ = kernels::make_decoder(loaded_.spec, kernels, *loaded_.layout, loaded_.parameters);
    STARLING_CHECK(decoder_ != nullptr);
    for (const auto& end : {language_.end(), language_.message_end()})
      if (end) loaded_.ends.insert(*end);
  }

  Result<std::vector<std::uint32_t>> begin(const std::string& prompt) const override {
    STARLING_TRY(begun, language_.encode(prompt));
    if (begun.empty()) begun.push_back(language_.beginning());
    STARLING_TRY(check_tokens(begun));
    return begun;
  }
  Result<std::vector<std::uint32_t>> begin_chat(const nlohmann::json& messages) const override {
    STARLING_TRY(begun, language_.encode_chat(messages));
    STARLING_TRY(check_tokens(begun));
    return begun;
  }
  bool knows_chats() const override { return language_.message_end().has_value(); }
  std::uint32_t context() const override { return decoder_->context(); }

  Result<Written> write(const std::vector<std::uint32_t>& begun, const Writing& writing,
                        const std::function<bool(std::string_view)>& show) override {
    STARLING_CHECK(!begun.empty());
    std::vector<std::uint32_t> all = begun;
    WrittenText text(writing.stop);
    Written written;
    decoder_->clear();
    auto logits = decoder_->append(seen(all, decoder_->context()));
    while (written.tokens < writing.tokens && !text.over()) {
      const auto some = logits.first(language_.vocabulary());
      if (std::ranges::none_of(some, [](float logit) { return logit > -HUGE_VALF; }))
        return bad_input(
            "the model gives no number for any token; starling check says whether it is whole");
      const std::uint32_t token = sample_token(writing.rule, some, writing.sample, written.tokens);
      if (loaded_.ends.contains(token) && !writing.past_end) {
        written.end = Written::End::kStop;
        break;
      }
      ++written.tokens;
      all.push_back(token);
      const std::string ready =
          writing.ids ? std::to_string(token) + " " : text.add(language_.decode(token));
      if (!show(ready)) {
        written.end = Written::End::kBroken;
        return written;
      }
      if (written.tokens == writing.tokens) break;
      if (decoder_->size() == decoder_->context()) {
        decoder_->clear();
        logits = decoder_->append(seen(all, decoder_->context()));
      } else {
        logits = decoder_->append({&token, 1});
      }
    }
    if (text.over()) written.end = Written::End::kStop;
    if (!show(text.rest())) written.end = Written::End::kBroken;
    return written;
  }

 private:
  Result<> check_tokens(const std::vector<std::uint32_t>& tokens) const {
    for (const std::uint32_t token : tokens)
      if (std::int64_t{token} >= loaded_.input.vocabulary)
        return bad_input("the prompt has token " + std::to_string(token) +
                         ", the model's are below " + std::to_string(loaded_.input.vocabulary));
    return ok();
  }

  Loaded loaded_;
  Language language_;
  std::unique_ptr<kernels::Decoder> decoder_;
};

}  // namespace

Result<std::unique_ptr<TextWriter>> TextWriter::open(const WriterPlaces& places,
                                                     const std::string& isa) {
  const auto& [model, base, tokenizer, chat] = places;
  STARLING_TRY(kernels, kernels::kernel_table(isa));
  if (!is_adapter(model) && !base.empty())
    return bad_input("--base is of adapters, and " + model + " has no " + kAdapterConfig);
  std::string place = model;  // of the whole model
  if (is_adapter(model)) {
    STARLING_TRY(there, base_of_adapter(model, base));
    place = there;
  }
  STARLING_TRY(loaded, is_adapter(model) ? load_adapted(model, place, isa) : load(model, isa));
  std::error_code error;
  std::string folder =
      fs::is_directory(place, error) ? place : fs::path(place).parent_path().string();
  if (!tokenizer_files(model).empty()) folder = model;
  STARLING_TRY(language, Language::read(tokenizer, folder.empty() ? "." : folder, chat,
                                        loaded.input.vocabulary));
  return std::unique_ptr<TextWriter>(
      std::make_unique<ModelWriter>(std::move(loaded), std::move(language), *kernels));
}

}  // namespace starling::tools
