#include "tools/starling/generate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>

#include "actors/make_model.h"
#include "actors/pretrained.h"
#include "core/base/file_system.h"
#include "core/job/models/published_model.h"
#include "core/text/pattern.h"
#include "core/text/tokenizer.h"
#include "core/text/written_text.h"
#include "kernels/models/decoder.h"
#include "kernels/models/model.h"
#include "tools/processes/signals.h"
#include "tools/starling/exit.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kByteVocabulary = 256;
constexpr std::uint64_t kPromptMax = 64u << 20;  // bytes

// What tokens are as text: a tokenizer's, or bytes.
class Language {
 public:
  static Result<Language> read(const GenerateCommand& command, const std::string& folder,
                               std::int64_t vocabulary) {
    Language language;
    const bool beside = !tokenizer_files(folder).empty();
    if (command.tokenizer.empty() && !beside) {
      if (vocabulary == kByteVocabulary) return language;
      return bad_input(
          "no tokenizer.json, or vocab.json and merges.txt, is beside the model, whose vocabulary "
          "is " +
          std::to_string(vocabulary) + "; --tokenizer says where they are; " + folder);
    }
    STARLING_TRY(file, read_tokenizer(command.tokenizer.empty() ? folder : command.tokenizer));
    language.tokenizer_ = std::make_unique<Tokenizer>(std::move(file));
    if (language.tokenizer_->vocabulary() > vocabulary)
      return bad_input("the tokenizer has " + std::to_string(language.tokenizer_->vocabulary()) +
                       " tokens, the model " + std::to_string(vocabulary) +
                       ": it is another one's; " + folder);
    return language;
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
  std::unique_ptr<Tokenizer> tokenizer_;
};

// A model whose weights are in memory.
struct Loaded {
  ModelSpec spec;
  ModelInput input;
  std::unique_ptr<kernels::Model> model;
  std::unique_ptr<Layout> layout;
  std::vector<float> parameters;
};

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
  Job job;
  job.model = loaded.spec;
  job.isa = isa;
  STARLING_TRY(model, actors::make_model(job));
  // Before memory is taken for what may be no such model.
  STARLING_TRY(actors::check_weights(job, model->tensors()));
  loaded.model = std::move(model);
  loaded.layout = std::make_unique<Layout>(loaded.model->tensors());
  loaded.parameters.resize(loaded.layout->elements());
  STARLING_TRY(loaded.model->initialise(/*seed=*/0, *loaded.layout, loaded.parameters));
  return loaded;
}

Result<std::string> prompt_of(const GenerateCommand& command) {
  if (command.prompt_file.empty()) return command.prompt;
  if (!command.prompt.empty()) return bad_input("--prompt and --prompt-file exclude one another");
  std::string text;
  if (command.prompt_file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    STARLING_TRY(is_file(command.prompt_file, "a prompt"));
    std::ifstream file(command.prompt_file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  if (text.size() > kPromptMax)
    return bad_input("a prompt has at most " + std::to_string(kPromptMax) + " bytes, this has " +
                     std::to_string(text.size()) + "; " + command.prompt_file);
  return text;
}

// The last tokens that the model can look at, with room for further ones: half of its context once that is full.
std::span<const std::uint32_t> seen(std::span<const std::uint32_t> all, std::uint32_t context) {
  if (all.size() <= context) return all;
  return all.last(std::max<std::size_t>(1, context / 2));
}

Result<int> run(const GenerateCommand& command) {
  STARLING_TRY(kernels, kernels::kernel_table(command.isa));
  STARLING_TRY(prompt, prompt_of(command));
  STARLING_TRY(loaded, load(command.model, command.isa));
  std::error_code error;
  const std::string folder = fs::is_directory(command.model, error)
                                 ? command.model
                                 : fs::path(command.model).parent_path().string();
  STARLING_TRY(language,
               Language::read(command, folder.empty() ? "." : folder, loaded.input.vocabulary));
  STARLING_TRY(begun, language.encode(prompt));
  if (begun.empty()) begun.push_back(language.beginning());
  for (const std::uint32_t token : begun)
    if (std::int64_t{token} >= loaded.input.vocabulary)
      return bad_input("the prompt has token " + std::to_string(token) +
                       ", the model's are below " + std::to_string(loaded.input.vocabulary));
  const auto decoder =
      kernels::make_decoder(loaded.spec, *kernels, *loaded.layout, loaded.parameters);
  block_ending_signals();
  const auto started = std::chrono::steady_clock::now();
  std::uint64_t written = 0;
  for (std::uint32_t sample = 0; sample < command.samples; ++sample) {
    if (sample > 0) std::printf("\n---\n");
    std::vector<std::uint32_t> all = begun;
    WrittenText text(command.stop);
    if (!command.ids) std::fwrite(prompt.data(), 1, prompt.size(), stdout);
    decoder->clear();
    auto logits = decoder->append(seen(all, decoder->context()));
    for (std::uint32_t i = 0; i < command.tokens && !text.over(); ++i) {
      if (const int signal = pending_signal()) return 128 + signal;
      const auto some = logits.first(language.vocabulary());
      if (std::ranges::none_of(some, [](float logit) { return logit > -HUGE_VALF; }))
        return bad_input(
            "the model gives no number for any token; starling check says whether it is whole");
      const std::uint32_t token = sample_token(command.rule, some, sample, i);
      if (token == language.end() && !command.past_end) break;
      ++written;
      all.push_back(token);
      if (command.ids) {
        std::printf("%u ", token);
      } else {
        const std::string ready = text.add(language.decode(token));
        std::fwrite(ready.data(), 1, ready.size(), stdout);
      }
      std::fflush(stdout);
      if (i + 1 == command.tokens) break;
      if (decoder->size() == decoder->context()) {
        decoder->clear();
        logits = decoder->append(seen(all, decoder->context()));
      } else {
        logits = decoder->append({&token, 1});
      }
    }
    const std::string rest = text.rest();
    std::fwrite(rest.data(), 1, rest.size(), stdout);
  }
  std::printf("\n");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (::isatty(STDERR_FILENO) != 0)
    std::fprintf(stderr, "%llu tokens, %.1f a second\n", static_cast<unsigned long long>(written),
                 static_cast<double>(written) / seconds);
  return 0;
}

// CLI11 takes "nan" for a number in any range.
const CLI::Validator kFinite(
    [](std::string& text) {
      return text.find_first_of("nN") == std::string::npos ? std::string()
                                                           : "must be a number, is " + text;
    },
    "", "finite");

}  // namespace

void add_generate(CLI::App& app, GenerateCommand& command) {
  auto* sub = subcommand(app, "generate", "Has a trained language model write, token by token.",
                         "starling generate runs/tiny --prompt \"Once upon\" --tokens 300\n  "
                         "starling generate gpt2/ --prompt-file letter.txt --temperature 0");
  sub->add_option("model", command.model,
                  "folder of a run or of a published GPT-2: model.safetensors, config.json")
      ->required();
  sub->add_option("--prompt", command.prompt, "text that it goes on from");
  sub->add_option("--prompt-file", command.prompt_file, "file with that text; -: standard input");
  sub->add_option("--tokenizer", command.tokenizer,
                  "tokenizer.json, or a folder with it, or with vocab.json and merges.txt "
                  "(default: the model's folder)");
  sub->add_option("--tokens", command.tokens, "tokens to write, at most")
      ->check(CLI::Range(1u, 1u << 24))
      ->capture_default_str();
  sub->add_option("--samples", command.samples, "texts from the same prompt")
      ->check(CLI::Range(1u, 1u << 16))
      ->capture_default_str();
  sub->add_option("--temperature", command.rule.temperature,
                  "0: always the most likely token; 1: as the model has it")
      ->check(kFinite)
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  sub->add_option("--top-k", command.rule.top_k, "only the so many most likely tokens; 0: all")
      ->check(kWhole)
      ->capture_default_str();
  sub->add_option("--top-p", command.rule.top_p,
                  "only the most likely ones that together have this probability")
      ->check(kFinite)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_option("--seed", command.rule.seed,
                  "another one writes another text; the same one the same")
      ->check(kWhole)
      ->capture_default_str();
  sub->add_option("--stop", command.stop, "text before which it ends; may come several times")
      ->allow_extra_args(false)
      ->check(kNamed);
  sub->add_flag("--past-end", command.past_end, "goes on behind the end of a document");
  sub->add_flag("--ids", command.ids, "writes the tokens as numbers");
  sub->add_option("--isa", command.isa, "instruction set to compute with")
      ->check(CLI::IsMember({"auto", "reference", "avx2", "avx512"}))
      ->capture_default_str();
}

int generate(const GenerateCommand& command) {
  auto done = run(command);
  return done ? done.value() : fail(done.error());
}

}  // namespace starling::tools
