#include "actors/tokenizers.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/text/tokenizer_file.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling::actors {
namespace {

const std::string kFixture = "tests/fixtures/bpe/gpt2.json";

nlohmann::json fixture() {
  std::ifstream file(kFixture);
  return nlohmann::json::parse(file);
}

std::string said(const Job& job) {
  const auto checked = check_tokenizers(job);
  return checked ? "no error" : checked.error().text();
}

}  // namespace

TEST_CASE("tokenizers: of tokens that are trained on, of held-out ones and of weights") {
  const DataFolder folder;
  Job job;
  job.data.kind = DataKind::kTokens;
  job.data.path = folder.path() + "/tokens";
  job.evaluate.path = folder.path() + "/held-out";
  job.evaluate.every = 1;
  GptSpec gpt;
  gpt.from = folder.path() + "/weights/model.safetensors";
  job.model = gpt;
  for (const char* name : {"tokens/a.bin", "held-out/a.bin", "weights/model.safetensors"})
    folder.write(name, "");
  const auto put = [&](const std::string& where, const nlohmann::json& tokenizer, int indent = -1) {
    folder.write(where + "/tokenizer.json", tokenizer.dump(indent));
  };
  // Nobody knows of which they are.
  CHECK(said(job) == "no error");
  put("tokens", fixture());
  CHECK(said(job) == "no error");
  // The same, written otherwise.
  put("held-out", fixture(), 1);
  put("weights", fixture(), 2);
  CHECK(said(job) == "no error");

  nlohmann::json more = fixture();
  const auto next = read_tokenizer(kFixture).value().tokens.size();
  more["added_tokens"].push_back({{"id", next}, {"content", "<|turn|>"}, {"special", true}});
  put("tokens", more);
  CHECK(has(said(job), "[evaluate] " + folder.path() + "/held-out has another tokenizer"));
  put("held-out", more);
  CHECK(said(job) == "no error");  // the weights' lacks an added one
  put("tokens", fixture());
  put("held-out", fixture());
  put("weights", more);
  CHECK(has(said(job), "[model].from " + folder.path() + "/weights has another tokenizer"));

  nlohmann::json swapped = fixture();
  std::swap(swapped["model"]["vocab"]["a"], swapped["model"]["vocab"]["b"]);
  put("weights", swapped);
  CHECK(has(said(job), "has another tokenizer than the tokens of [data]"));
  nlohmann::json merged = fixture();
  std::swap(merged["model"]["merges"][0], merged["model"]["merges"][1]);
  put("weights", merged);
  CHECK(has(said(job), "has another tokenizer than the tokens of [data]"));
  put("weights", {{"model", {{"type", "Unigram"}}}});
  CHECK(has(said(job), "has another tokenizer than the tokens of [data]"));
  gpt.from.clear();
  job.model = gpt;
  CHECK(said(job) == "no error");
}

}  // namespace starling::actors
