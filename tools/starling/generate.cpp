#include "tools/starling/generate.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/file_system.h"
#include "tools/processes/signals.h"
#include "tools/starling/completion_server.h"
#include "tools/starling/exit.h"
#include "tools/starling/text_writer.h"

namespace starling::tools {
namespace {

constexpr std::uint64_t kPromptMax = 64u << 20;  // bytes

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

nlohmann::json chat_of(const GenerateCommand& command) {
  auto messages = nlohmann::json::array();
  const auto add = [&](const char* role, const std::string& content) {
    if (!content.empty()) messages.push_back({{"role", role}, {"content", content}});
  };
  add("system", command.system);
  add("user", *command.message);
  return messages;
}

SamplingRule rule_of(const GenerateCommand& command, double usual_temperature) {
  SamplingRule rule = command.rule;
  rule.temperature = command.temperature.value_or(usual_temperature);
  return rule;
}

Result<int> serve(const GenerateCommand& command, TextWriter& writer) {
  std::filesystem::path model = std::filesystem::path(command.model).lexically_normal();
  if (model.filename().empty()) model = model.parent_path();
  const std::string name = model.string();
  STARLING_TRY(server, CompletionServer::make(*command.serve, name, rule_of(command, 1), writer));
  std::printf("completions of %s are at %s%s; Ctrl-C ends it\n", name.c_str(),
              server->url().c_str(), writer.knows_chats() ? ", chats at /v1/chat/completions" : "");
  std::fflush(stdout);
  return 128 + server->run([] { return pending_signal(); });
}

Result<int> run(const GenerateCommand& command) {
  if (!command.message && !command.system.empty())
    return bad_input("--system stands before a --message, and there is none");
  if (command.message && command.message->empty())
    return bad_input("--message is empty, expected what a user says");
  STARLING_TRY(prompt, prompt_of(command));
  STARLING_TRY(writer,
               TextWriter::open({command.model, command.base, command.tokenizer, command.chat},
                                command.isa));
  STARLING_TRY(begun,
               !command.message ? writer->begin(prompt) : writer->begin_chat(chat_of(command)));
  block_ending_signals();
  if (command.serve) return serve(command, *writer);
  const auto started = std::chrono::steady_clock::now();
  std::uint64_t tokens = 0;
  int signal = 0;
  const auto show = [&](std::string_view ready) {
    std::fwrite(ready.data(), 1, ready.size(), stdout);
    std::fflush(stdout);
    signal = pending_signal();
    return signal == 0;
  };
  for (std::uint32_t sample = 0; sample < command.samples; ++sample) {
    if (sample > 0) std::printf("\n---\n");
    if (!command.ids) std::fwrite(prompt.data(), 1, prompt.size(), stdout);
    STARLING_TRY(written, writer->write(begun,
                                        {command.tokens, sample, rule_of(command, 0.8),
                                         command.stop, command.past_end, command.ids},
                                        show));
    if (signal != 0) return 128 + signal;
    tokens += written.tokens;
  }
  std::printf("\n");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (::isatty(STDERR_FILENO) != 0)
    std::fprintf(stderr, "%llu tokens, %.1f a second\n", static_cast<unsigned long long>(tokens),
                 static_cast<double>(tokens) / seconds);
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
                         "starling generate gpt2/ --prompt-file letter.txt --temperature 0\n  "
                         "starling generate runs/chat --message \"How far is the moon?\"\n  "
                         "starling generate runs/tiny --serve 8000");
  sub->add_option("model", command.model,
                  "folder of a run or of a published model: model.safetensors, config.json")
      ->required();
  sub->add_option("--prompt", command.prompt, "text that it goes on from");
  sub->add_option("--prompt-file", command.prompt_file, "file with that text; -: standard input");
  sub->add_option("--message", command.message,
                  "what a user says in a chat; the answer alone is written")
      ->excludes("--prompt", "--prompt-file");
  sub->add_option("--system", command.system, "what stands before it, as the system's message");
  sub->add_option("--chat", command.chat,
                  "how chats are written (default: as the model's tokenizer says, where starling "
                  "tokenize --chat wrote it)")
      ->check(CLI::IsMember({"chatml", "llama3"}));
  sub->add_option(
      "--base", command.base,
      "of a folder of adapters: where the weights are that they adapt (default: as they say)");
  sub->add_option("--tokenizer", command.tokenizer,
                  "tokenizer.json, or a folder with it, or with vocab.json and merges.txt "
                  "(default: the model's folder)");
  sub->add_option("--tokens", command.tokens, "tokens to write, at most")
      ->check(CLI::Range(1u, 1u << 24))
      ->capture_default_str();
  sub->add_option("--samples", command.samples, "texts from the same prompt")
      ->check(CLI::Range(1u, 1u << 16))
      ->capture_default_str();
  sub->add_option(
         "--temperature", command.temperature,
         "0: always the most likely token; 1: as the model has it (default: 0.8, of --serve 1)")
      ->check(kFinite)
      ->check(CLI::Range(0.0, 100.0));
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
  sub->add_option(
         "--serve", command.serve,
         "answers POST /v1/completions and /v1/chat/completions at this port of 127.0.0.1, as "
         "OpenAI's clients ask, until it is ended; 0: any port")
      ->check(CLI::Range(0, 65535))
      ->excludes("--prompt", "--prompt-file", "--message", "--system", "--tokens", "--samples",
                 "--stop", "--past-end", "--ids");
  sub->add_option("--isa", command.isa, "instruction set to compute with")
      ->check(CLI::IsMember({"auto", "reference", "avx2", "avx512"}))
      ->capture_default_str();
}

int generate(const GenerateCommand& command) {
  auto done = run(command);
  return done ? done.value() : fail(done.error());
}

}  // namespace starling::tools
