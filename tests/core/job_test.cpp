#include "core/job/job.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "core/formats/job_file.h"
#include "tests/core/job_text.h"

namespace starling {

TEST_CASE("the examples are what they say") {
  const auto tiny = load_job("examples/gpt/tiny.toml");
  REQUIRE_MESSAGE(tiny, tiny.error().text());
  const Job& job = tiny.value();
  CHECK(job.name == "tiny");
  CHECK(job.micro_batches == 8);
  CHECK(job.micro_batch_sequences == 4);
  CHECK(std::get<GptSpec>(job.model) == GptSpec{4, 4, 128, 128, 256});
  CHECK(job.optimizer.schedule_steps == 200);
  CHECK(job.optimizer == [] {
    OptimizerSpec o;  // the rest is what is left out of a file: brackets in tiny.toml
    o.warmup_steps = 10;
    o.schedule_steps = 200;
    return o;
  }());
  const auto digits = load_job("examples/mlp/digits.toml");
  REQUIRE_MESSAGE(digits, digits.error().text());
  CHECK(std::get<MlpSpec>(digits.value().model).sizes ==
        std::vector<std::uint32_t>{64, 48, 32, 10});
  CHECK(std::filesystem::path(digits.value().data.path).is_absolute());
  const std::pair<const char*, std::uint64_t> synthetics[] = {
      {"1m", 1'000'000}, {"10m", 10'000'000}, {"100m", 100'000'000}};
  for (const auto& [name, parameters] : synthetics) {
    const auto job_read = load_job("examples/synthetic/" + std::string(name) + ".toml");
    REQUIRE_MESSAGE(job_read, job_read.error().text());
    CHECK(job_read.value().name == "synthetic-" + std::string(name));
    CHECK(std::get<SyntheticSpec>(job_read.value().model).parameters == parameters);
  }
}

TEST_CASE("a formatted job reads back equal") {
  for (const char* path :
       {"examples/gpt/tiny.toml", "examples/mlp/digits.toml", "examples/synthetic/1m.toml"}) {
    const auto job = load_job(path);
    REQUIRE(job);
    const std::string text = format_job(job.value());
    const auto again = parse_job(text, "/nowhere");
    REQUIRE_MESSAGE(again, again.error().text());
    CHECK(again.value() == job.value());
    CHECK(format_job(again.value()) == text);
  }
}

TEST_CASE("a formatted job keeps a synthetic model's times") {
  auto job = load_job("examples/synthetic/1m.toml").value();
  job.model = SyntheticSpec{1000, 0.1 + 0.2, 1, {1, 2.5, 1000}};
  const auto again = parse_job(format_job(job), "");
  REQUIRE_MESSAGE(again, again.error().text());
  CHECK(again.value() == job);
}

TEST_CASE("a formatted job keeps awkward numbers and texts") {
  auto job = parse_job(kGood, ".").value();
  job.optimizer.peak_rate = 0.1 + 0.2;
  job.optimizer.epsilon = 5e-324;
  job.optimizer.clip = 0, job.isa = "emulated", job.precision = Precision::kBf16;
  job.elastic.shares = ShareRule::kEqual, job.elastic.slowest = 8, job.recompute = true,
  job.offload = Offload::kMoments;
  job.elastic.seal = SealRule::kOn;
  job.data.extensions = {"", ".\"\\\x01\xc3\xa9"};
  const auto again = parse_job(format_job(job), "");
  REQUIRE_MESSAGE(again, again.error().text());
  CHECK(again.value() == job);
}

TEST_CASE("the loss is scaled with fp16 alone, by a power of two") {
  const auto job =
      parse_job(replaced(kGood, "steps = ",
                         "precision = \"fp16\"\nloss_scale = 1024\nloss_scale_steps = 7\nsteps = "),
                ".");
  REQUIRE_MESSAGE(job, job.error().text());
  CHECK(loss_scale_rule(job.value()) == LossScaleRule{.on = true, .first = 10, .every = 7});
  CHECK(parse_job(format_job(job.value()), "").value() == job.value());
  CHECK_FALSE(loss_scale_rule(parse_job(kGood, ".").value()).on);
  CHECK(error_of(replaced(kGood, "steps = ", "loss_scale = 1024\nsteps = "))
            .find("the loss is scaled with precision = \"fp16\" alone") == 0);
  CHECK(error_of(replaced(kGood, "steps = ", "precision = \"fp16\"\nloss_scale = 1000\nsteps = "))
            .find("loss_scale must be a power of two, is 1000") == 0);
}

TEST_CASE("an unknown key is said before a missing one, which it may mean") {
  const std::string text = replaced(kGood, "peak_rate = 1e-3", "learning_rate = 1e-3");
  CHECK(error_of(text) ==
        "unknown key `learning_rate`, here it is `peak_rate` in [optimizer]; "
        "[optimizer].learning_rate, line 13");
  CHECK(error_of(replaced(kGood, "peak_rate = 1e-3\n", "")) ==
        "peak_rate is missing; [optimizer].peak_rate, line 11");
  CHECK(error_of(replaced(kGood, "kind = \"gpt\"\nlayers = 2", "layer = 2"))
            .find("unknown key `layer`, did you mean `layers`?") == 0);
}

TEST_CASE("a job that a program has made is checked as a file is, without lines nobody wrote") {
  Job job = parse_job(kGood, ".").value();
  CHECK(validate(job));
  job.steps = 0;
  CHECK(validate(job).error().text() ==
        "steps must be an integer from 1 to 4294967295, is 0; [job].steps");
  job = Job{};
  CHECK(!validate(job));
  job.steps = 1;
  CHECK(validate_training(job));
  job.optimizer.clip = std::numeric_limits<double>::quiet_NaN();
  const std::string why = validate_training(job).error().text();
  CHECK_MESSAGE(why.find("clip must be a number from 0") == 0, why);
}

TEST_CASE("bad job files: the message says what, where and what was expected") {
  struct Row {
    const char *from, *to, *message;
  };
  const Row rows[] = {
      {"steps = 60", "steps = 0",
       "steps must be an integer from 1 to 4294967295, is 0; [job].steps, line 3"},
      {"steps = 60", "steps = -1", "is -1; [job].steps, line 3"},
      {"steps = 60", "steps = 60.0", "steps must be an integer"},
      {"steps = 60", "steps = \"60\"", "is \"60\"; [job].steps"},
      {"steps = 60", "steps = [1, 2]", "is [ 1, 2 ]; [job].steps"},
      {"steps = 60\n", "", "steps is missing; [job].steps, line 1"},
      {"steps = 60", "steps = 60\nsteps = 61", "line 4"},
      {"steps = 60", "steps = ", "line 3, expected TOML"},
      {"steps = 60", "steps = 60\nstep = 3",
       "unknown key `step`, did you mean `steps`?; [job].step, line 4"},
      {"steps = 60", "steps = 60\nmicrobatches = 3", "did you mean `micro_batches`?"},
      {"steps = 60", "steps = 60\nxyzzyplugh = 3", "known are name, seed, steps"},
      {"steps = 60", "steps = 60\nmicro_batches = 4097",
       "micro_batches must be an integer from 1 to 4096"},
      {"steps = 60", "steps = 60\nsequences = 0", "[job].sequences"},
      {"steps = 60", "steps = 60\nreplicas = 17",
       "replicas must be an integer from 0 to 16, is 17"},
      {"steps = 60", "steps = 60\nseed = 9223372036854775808", "line 4, expected TOML"},
      {"steps = 60", "steps = 60\nisa = \"sse\"",
       "isa must be one of \"auto\", \"reference\", \"avx2\", \"avx512\", \"cuda\", is \"sse\""},
      {"name = \"t\"", "name = \"a b\"", "name must consist of letters"},
      {"name = \"t\"", "name = \"\"", "name must be a text of 1 to 64 bytes"},
      {"[job]", "[jobs]", "unknown section `jobs`, did you mean `job`?; line 1"},
      {"[model]", "[extra]\n[model]", "unknown section `extra`"},
      {"[job]\nname = \"t\"\nsteps = 60", "job = 3", "job must be a table; [job], line 1"},
      {"kind = \"gpt\"", "kind = \"gtp\"",
       "\"synthetic\", \"python\", \"own\", is \"gtp\"; [model].kind, line 5"},
      {"kind = \"gpt\"", "kind = \"mlp\"",
       "layers does not apply to kind \"mlp\"; [model].layers, line 6"},
      {"layers = 2", "layers = 1025", "layers must be an integer from 1 to 1024"},
      {"layers = 2\n", "", "layers is missing; [model].layers"},
      {"width = 64", "width = 66",
       "width must be a multiple of heads (4), is 66; [model].width, line 8"},
      {"layers = 2\nheads = 4\nwidth = 64", "layers = 1024\nheads = 4\nwidth = 65536",
       "at most 2^36 parameters"},
      {"context = 32", "context = 0", "[model].context"},
      {"vocabulary = 256", "vocabulary = 300",
       "needs vocabulary = 256 in [model], is 300; [data].kind"},
      {"vocabulary = 256", "vocabulary = 256\nsizes = [1, 2]",
       "sizes does not apply to kind \"gpt\""},
      {"peak_rate = 1e-3", "peak_rate = 0",
       "peak_rate must be a number above 0.0, at most 1000.0, is 0"},
      {"peak_rate = 1e-3", "peak_rate = nan", "peak_rate must be a number above 0.0"},
      {"peak_rate = 1e-3", "peak_rate = inf", "[optimizer].peak_rate, line 13"},
      {"peak_rate = 1e-3", "peak_rate = true", "is true"},
      {"peak_rate = 1e-3", "peak_rate = 1\nfloor = 1.5",
       "floor must be a number from 0.0 to 1.0, is 1.5"},
      {"peak_rate = 1e-3", "peak_rate = 1\nbeta1 = 1.0", "beta1 must be a number"},
      {"peak_rate = 1e-3", "peak_rate = 1\nepsilon = 0.0", "epsilon must be a number above 0.0"},
      {"peak_rate = 1e-3", "peak_rate = 1\nmomentum = 0.9",
       "momentum does not apply to kind \"adamw\""},
      {"peak_rate = 1e-3", "peak_rate = 1\nbeta3 = 0.9",
       "unknown key `beta3`, did you mean `beta1`?"},
      {"peak_rate = 1e-3", "peak_rate = 1\nclip = -1", "clip must be a number from 0.0"},
      {"warmup_steps = 10", "warmup_steps = 60",
       "warmup_steps must be below the schedule's 60 steps, is 60"},
      {"warmup_steps = 10", "warmup_steps = 60\nschedule_steps = 200", "no error"},
      {"kind = \"adamw\"", "kind = \"sgd\"\nbeta2 = 0.9", "beta2 does not apply to kind \"sgd\""},
      {"kind = \"adamw\"", "kind = \"adam\"\nweight_decay = 0.1", "weight_decay does not apply"},
      {"kind = \"adamw\"", "kind = \"sgd\"\nnesterov = 1", "nesterov must be true or false, is 1"},
      {"kind = \"text\"", "kind = \"classified\"", "kind must be \"text\" or \"tokens\" for a gpt"},
      {"kind = \"text\"", "kind = \"classified\"\nextensions = [\".h\"]",
       "extensions does not apply to kind \"classified\""},
      {"path = \"core\"", "path = \"core/*.none\"", "core/*.none (no file matches)"},
      {"kind = \"text\"", "kind = \"text\"\nextensions = [\"h\"]",
       "extensions must be texts like \".h\""},
      {"kind = \"text\"", "kind = \"text\"\nextensions = \".h\"", "extensions must be an array"},
      {"path = \"core\"", "path = \"no/such\"",
       "(No such file or directory); [data].path, line 17"},
      {"path = \"core\"", "path = \"/dev/null\"", "path must be a regular file or a folder"},
      {"path = \"core\"", "path = \"a\\u0000b\"", "path must be a text of 1 to 4096 bytes"},
      {"path = \"core\"\n", "", "path is missing; [data].path, line 15"},
      {"path = \"core\"", "path = \"core\"\n[elastic]\nlease_ms = 1",
       "lease_ms must be an integer from 10"},
      {"path = \"core\"", "path = \"core\"\n[elastic]\nlease_ms = 5000\nstate_timeout_ms = 4000",
       "state_timeout_ms must be at least lease_ms (5000), is 4000"},
      {"path = \"core\"", "path = \"core\"\n[elastic]\nlease = 5000", "did you mean `lease_ms`?"},
      {"path = \"core\"", "path = \"core\"\n[elastic]\nslowest = 1.5",
       "slowest must be an integer from 0"},
      {"path = \"core\"", "path = \"core\"\n[elastic]\nshares = \"fast\"",
       "shares must be one of \"equal\", \"speed\", is \"fast\""},
      {"path = \"core\"", "path = \"core\"\n[elastic]\nseal = \"maybe\"",
       "seal must be one of \"auto\", \"on\", \"off\", is \"maybe\""},
  };
  for (const Row& row : rows) {
    const std::string error = error_of(replaced(kGood, row.from, row.to));
    CHECK_MESSAGE(error.find(row.message) != std::string::npos,
                  "got: " << error << "\nwanted: " << std::string(row.message));
  }
}

TEST_CASE("foreign bytes are cut and escaped in messages") {
  const std::string error =
      error_of(replaced(kGood, "name = \"t\"", "name = \"" + std::string(500, 'x') + "\""));
  CHECK(error.size() < 200);
  CHECK(error_of(replaced(kGood, "\"t\"", "\"a\\u001bb\"")).find('\x1b') == std::string::npos);
  CHECK(error_of(std::string("\xff\xfe", 2)).find("expected TOML") != std::string::npos);
  CHECK(error_of("").find("section is missing; [job]") != std::string::npos);
  CHECK(error_of("a = " + std::string(100000, '[')).find("expected TOML") != std::string::npos);
}

TEST_CASE("an mlp's sizes") {
  std::string mlp = replaced(
      kGood, "kind = \"gpt\"\nlayers = 2\nheads = 4\nwidth = 64\ncontext = 32\nvocabulary = 256",
      "kind = \"mlp\"\nsizes = [64, 10]");
  mlp = replaced(mlp, "kind = \"text\"\npath = \"core\"",
                 "kind = \"classified\"\npath = \"examples/mlp/digits.safetensors\"");
  CHECK(error_of(mlp) == "no error");
  CHECK(error_of(replaced(mlp, "[64, 10]", "[64]")).find("[inputs, classes]") != std::string::npos);
  CHECK(error_of(replaced(mlp, "[64, 10]", "[64, 1]")).find("2 classes") != std::string::npos);
  CHECK(error_of(replaced(mlp, "[64, 10]", "[64, 0]")).find("sizes must be integers from 1") !=
        std::string::npos);
  CHECK(error_of(replaced(mlp, "[64, 10]", "[64, 2.5]")).find("is 2.5") != std::string::npos);
  CHECK(error_of(replaced(mlp, "[64, 10]", "[1048576, 1048576]")).find("2^36") !=
        std::string::npos);
  CHECK(error_of(replaced(mlp, "\"classified\"", "\"text\"")).find("for an mlp") !=
        std::string::npos);
}

TEST_CASE("a synthetic model's keys") {
  const std::string good = R"([job]
name = "t"
steps = 60
[model]
kind = "synthetic"
parameters = 1000
compute_ms = 20
[optimizer]
kind = "adamw"
peak_rate = 1e-3
)";
  const Job job = parse_job(good, ".").value();
  CHECK(std::get<SyntheticSpec>(job.model) == SyntheticSpec{1000, 20, 0, {}});
  struct Row {
    const char *from, *to, *message;
  };
  const Row rows[] = {
      {"parameters = 1000", "parameters = 999",
       "parameters must be an integer from 1000 to 68719476736, is 999; [model].parameters, line "
       "6"},
      {"parameters = 1000\n", "", "parameters is missing; [model].parameters"},
      {"parameters = 1000", "parameter = 1000",
       "unknown key `parameter`, did you mean `parameters`?; [model].parameter, line 6"},
      {"compute_ms = 20\n", "", "compute_ms is missing; [model].compute_ms"},
      {"compute_ms = 20", "compute_ms = -1", "compute_ms must be a number from 0.0 to 3600000.0"},
      {"compute_ms = 20", "compute_ms = nan", "compute_ms must be a number"},
      {"compute_ms = 20", "compute_ms = 20\njitter = 1.5",
       "jitter must be a number from 0.0 to 1.0, is 1.5; [model].jitter, line 8"},
      {"compute_ms = 20", "compute_ms = 20\njiter = 0.5",
       "unknown key `jiter`, did you mean `jitter`?; [model].jiter, line 8"},
      {"compute_ms = 20", "compute_ms = 20\nslow = 2", "slow must be an array"},
      {"compute_ms = 20", "compute_ms = 20\nslow = [1, 0.5]",
       "slow must be numbers from 1.0 to 1000.0, is 0.5; [model].slow, line 8"},
      {"compute_ms = 20", "compute_ms = 20\nslow = [1, 1001]", "is 1001"},
      {"compute_ms = 20", "compute_ms = 20\nslow = [\"2\"]", "is \"2\""},
      {"compute_ms = 20", "compute_ms = 20\nwidth = 3",
       "width does not apply to kind \"synthetic\"; [model].width, line 8"},
      {"compute_ms = 20", "compute_ms = 20\nsizes = [3]", "sizes does not apply"},
      {"[optimizer]", "[data]\nkind = \"text\"\npath = \"core\"\n[optimizer]",
       "section does not apply to a model of kind \"synthetic\"; [data], line 8"},
  };
  for (const Row& row : rows) {
    const std::string error = error_of(replaced(good, row.from, row.to));
    CHECK_MESSAGE(error.find(row.message) != std::string::npos,
                  "got: " << error << "\nwanted: " << std::string(row.message));
  }
  CHECK(error_of(replaced(kGood, "layers = 2", "jitter = 0.5\nlayers = 2"))
            .find("jitter does not apply to kind \"gpt\"") != std::string::npos);

  const auto with = [&](SyntheticSpec spec) {
    Job other = job;
    other.model = spec;
    return job_hash(other);
  };
  CHECK(with({1000, 77, 0.5, {3}}) == job_hash(job));  // time reaches no bit
  CHECK(with({1001, 20, 0, {}}) != job_hash(job));
}

TEST_CASE("job files that cannot be read") {
  CHECK(load_job("no/such/job.toml").error().text().find("reading no/such/job.toml") !=
        std::string::npos);
  CHECK(load_job("core").error().text().find("not a regular file") != std::string::npos);
  const std::string path = std::filesystem::temp_directory_path() / "starling_job_test.toml";
  std::ofstream(path) << std::string((1 << 20) + 1, '#');
  CHECK(load_job(path).error().text().find("at most 1 MiB") != std::string::npos);
  std::filesystem::remove(path);
}

TEST_CASE("the learning rate's formula") {
  OptimizerSpec o;
  o.peak_rate = 1e-3, o.floor = 0.1, o.warmup_steps = 2;
  for (std::uint64_t k = 0; k < 5; ++k) {  // S = 5, W = 2
    const double cosine = (1 + std::cos(M_PI * (static_cast<double>(k) - 1) / 3)) / 2;
    const double expected =
        k < 2 ? 1e-3 * (static_cast<double>(k) + 1) / 2 : 1e-3 * (0.1 + 0.9 * cosine);
    CHECK(std::abs(learning_rate(o, k, 5) - expected) < 1e-18);
  }
  CHECK(learning_rate(o, 1, 5) == 1e-3);
  CHECK(learning_rate(o, 4, 5) == 1e-3 * 0.1);
  CHECK(learning_rate(o, 1000, 5) == 1e-3 * 0.1);
}

TEST_CASE("the cosine ends at the schedule, not at the job") {
  OptimizerSpec o;
  o.warmup_steps = 10, o.schedule_steps = 200;
  CHECK(learning_rate(o, 59, 60) == learning_rate(o, 59, 200));
  CHECK(learning_rate(o, 59, 60) > 0.8e-3);
  o.schedule_steps = 0;
  CHECK(learning_rate(o, 59, 60) == o.peak_rate * o.floor);
  for (std::uint64_t k = 10; k < 59; ++k)
    CHECK(learning_rate(o, k, 60) > learning_rate(o, k + 1, 60));
}

TEST_CASE("the learning rate's cosine is as good as libm's") {
  OptimizerSpec o;
  o.peak_rate = 2, o.floor = 0;  // rate = 1 + cos(pi (k+1)/S)
  for (std::uint64_t k = 0; k + 1 < 1000; ++k) {
    const double exact =
        1 + static_cast<double>(std::cos(M_PIl * static_cast<long double>(k + 1) / 1000));
    CHECK(std::abs(learning_rate(o, k, 1000) - exact) < 4 * std::numeric_limits<double>::epsilon());
  }
}

TEST_CASE("[checkpoint]: off without the section, and checked with it") {
  CHECK(!parse_job(kGood, ".").value().checkpoint.on());
  const auto section = [](const std::string& keys) { return kGood + "[checkpoint]\n" + keys; };
  const auto read = parse_job(section("dir = \"c\"\nevery = 20\n"), ".");
  REQUIRE_MESSAGE(read, read.error().text());
  const Job& job = read.value();
  CHECK(job.checkpoint == CheckpointSpec{std::filesystem::absolute("c").string(), 20, 2});
  const auto again = parse_job(format_job(job), "/");
  REQUIRE_MESSAGE(again, again.error().text());
  CHECK(again.value() == job);
  CHECK(parse_job(section("dir = \"/c\"\nevery = 1\nkeep = 5\n"), ".").value().checkpoint ==
        CheckpointSpec{"/c", 1, 5});
  const Job tended =
      parse_job(section("dir = \"c\"\nevery = 20\nkeep = 1000\ntended = true\n"), ".").value();
  CHECK(tended.checkpoint.tended);
  CHECK(parse_job(format_job(tended), "/").value() == tended);
  CHECK(job_hash(tended) == job_hash(job));  // who removes checkpoints changes nothing for workers
  const Job aged =
      parse_job(section("dir = \"c\"\nevery = 20\nevery_seconds = 600\n"), ".").value();
  CHECK(aged.checkpoint.every_seconds == 600);
  CHECK(parse_job(format_job(aged), "/").value() == aged);
  CHECK(job_hash(aged) == job_hash(job));  // the leader asks for them
  const Job by_time = parse_job(section("dir = \"c\"\nevery_seconds = 600\n"), ".").value();
  CHECK(by_time.checkpoint.every == kCheckpointsByTime);
  CHECK(parse_job(format_job(by_time), "/").value() == by_time);
  CHECK(job_hash(by_time) != job_hash(job));
  const std::pair<const char*, const char*> wrong[] = {
      {"dir = \"c\"\nevery_seconds = 0\n",
       "every_seconds must be an integer from 1 to 1000000, is 0"},
      {"every = 20\n", "dir is missing; [checkpoint].dir"},
      {"dir = \"c\"\n", "every is missing; [checkpoint].every"},
      {"dir = \"c\"\nevery = 0\n", "every must be an integer from 1"},
      {"dir = \"c\"\nevery = 20\nkeep = 0\n", "keep must be an integer from 1 to 1000, is 0"},
      {"dir = \"c\"\nevry = 20\nevery = 20\n", "unknown key `evry`, did you mean `every`?"},
      {"dir = \"\"\nevery = 20\n", "dir must be a text"},
  };
  for (const auto& sample : wrong) {
    const auto* keys = sample.first;
    const auto* text = sample.second;
    CAPTURE(keys);
    const std::string error = error_of(section(keys));
    CHECK_MESSAGE(error.find(text) != std::string::npos, error);
  }
  CHECK(error_of(kGood + "[checkpoints]\n").find("did you mean `checkpoint`?") !=
        std::string::npos);
}

TEST_CASE("[evaluate]: off without the section, and checked with it") {
  CHECK(!parse_job(kGood, ".").value().evaluate.on());
  const auto section = [](const std::string& keys) { return kGood + "[evaluate]\n" + keys; };
  const auto read = parse_job(section("path = \"core\"\nevery = 20\nbatches = 3\n"), ".");
  REQUIRE_MESSAGE(read, read.error().text());
  const Job& job = read.value();
  CHECK(job.evaluate == EvaluateSpec{.path = (std::filesystem::current_path() / "core").string(),
                                     .every = 20,
                                     .batches = 3});
  CHECK(parse_job(format_job(job), "/").value() == job);
  Job other = job;
  other.evaluate.path = "/elsewhere";
  CHECK(job_hash(other) == job_hash(job));
  other.evaluate.every = 10;
  CHECK(job_hash(other) != job_hash(job));
  const std::pair<const char*, const char*> wrong[] = {
      {"every = 20\n", "path is missing; [evaluate].path"},
      {"path = \"core\"\n", "every is missing; [evaluate].every"},
      {"path = \"core\"\nevery = 0\n", "every must be an integer from 1"},
      {"path = \"core\"\nevery = 1\nbatches = 5000\n", "batches must be an integer from 1 to 4096"},
      {"path = \"core\"\nevery = 1\nsamples = 5\n", "samples does not apply to a model of kind"},
      {"path = \"no such thing\"\nevery = 1\n", "path must be a file or folder"},
  };
  for (const auto& [keys, why] : wrong) {
    const std::string error = error_of(section(keys));
    CHECK_MESSAGE(error.find(why) != std::string::npos, error);
  }
  CHECK(error_of(kGood + "[validation]\n").find("here it is the section [evaluate]") !=
        std::string::npos);
  Job brought = job;  // one that a program makes, for a model of its own
  CHECK(validate_training(brought));
}

TEST_CASE("[data] of an application's model is a path of this machine, and no part of the hash") {
  const auto text = [](const std::string& data) {
    return "[job]\nname = \"own\"\nsteps = 5\n[model]\nkind = \"own\"\nname = "
           "\"line\"\n[optimizer]\nkind = "
           "\"sgd\"\npeak_rate = 0.1\n" +
           data;
  };
  const auto with = parse_job(text("[data]\npath = \"examples\"\n"), ".");
  REQUIRE_MESSAGE(with, with.error().text());
  CHECK(with.value().data.path == (std::filesystem::current_path() / "examples").string());
  CHECK(parse_job(format_job(with.value()), "/").value() == with.value());
  CHECK(job_hash(with.value()) == job_hash(parse_job(text(""), ".").value()));
  const std::pair<const char*, const char*> cases[] = {
      {"[data]\nkind = \"text\"\npath = \"examples\"\n",
       "kind does not apply to a model of kind \"own\""},
      {"[data]\npath = \"no such thing\"\n", "path must be a file or folder that can be read"},
      {"[data]\n", "is missing"},
  };
  for (const auto& [data, why] : cases) {
    const auto refused = parse_job(text(data), ".");
    REQUIRE(!refused);
    CHECK_MESSAGE(refused.error().text().find(why) != std::string::npos, refused.error().text());
  }
}

}  // namespace starling
