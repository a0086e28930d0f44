// Models of scripts, computed by real child processes: tests/stand_in is in the place of the package,
// so no torch is needed. tests/pytorch has the package itself.
#include "actors/script/python_model.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/array.h"
#include "kernels/device/emulated.h"
#include "kernels/models/host_maker.h"
#include "tests/actors/script/python_rig.h"

namespace starling::actors::script {
namespace {

TEST_CASE("a script's model: first parameters, loss and gradient come from its process") {
  const Script script;
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  const auto parameters = rig.parameters.all();
  CHECK(parameters[0] == 5.0f / 8);
  CHECK(parameters[5] == 10.0f / 8);
  CHECK(parameters[kBlock] == 5.0f / 8);  // b begins at a block
  CHECK(parameters[6] == 0);              // padding
  const auto result = rig.pass();
  REQUIRE(result);
  CHECK(result.value().tokens == 2);
  CHECK(result.value().finite);
  const float wanted = (3 % 5 + 17 % 5) / 2.0f + 0.25f;
  CHECK(rig.gradient[0] == 2 * (parameters[0] - wanted));
  CHECK(rig.gradient[6] == 0);
  CHECK(rig.lost.empty());
}

// What passes come to on a device whose memory the host cannot read.
struct DeviceRig {
  explicit DeviceRig(const PythonSpec& spec, bool exports = true)
      : device(exports), model(make_python_model(spec, "avx2").value()), layout(model->tensors()) {
    REQUIRE(model->meet(device));
    auto first = Array<float>::shared(device, layout.elements());
    REQUIRE(model->initialise(5, layout, first));
    parameters = Array<float>::exported(device, layout.elements());
    parameters.copy_in(*device.make_queue(), 0, first.all());
    maker = std::make_unique<HostMaker>(*model, layout, device, 2);
  }
  std::vector<float> pass(std::uint64_t step) {
    Batch batch;
    batch.sequences = 2;
    batch.samples = {3, 17};
    batch.draw = {5, step, 1};
    std::vector<float> gradient(layout.elements());
    PassHooks hooks;
    hooks.take = [&](PartId, std::uint32_t, const float* made) {
      maker->queue().copy_out(writable_bytes(std::span(gradient)), made);
    };
    REQUIRE(maker->make({parameters.data(), nullptr, 0, parameters.place()}, batch, hooks));
    return gradient;
  }

  EmulatedDevice device;
  std::unique_ptr<PythonModel> model;
  Layout layout;
  Array<float> parameters;
  std::unique_ptr<HostMaker> maker;
};

TEST_CASE(
    "a process computes in a device's own memory, where it is mapped and the net lies there") {
  const Script script, elsewhere("computes-elsewhere");
  DeviceRig maps(spec_of(script)), copies(spec_of(elsewhere)), alone(spec_of(script), false);
  CHECK(maps.model->takes_places());
  CHECK_FALSE(copies.model->takes_places());
  CHECK_FALSE(alone.model->takes_places());
  const std::uint64_t array = maps.layout.elements() * sizeof(float);
  for (DeviceRig* rig : {&maps, &copies, &alone}) {
    const auto model = rig->model->copied();
    const auto before = rig->device.copies();
    rig->pass(0);
    CHECK(rig->pass(1) == maps.pass(1));
    if (rig == &maps) continue;
    CHECK(rig->model->copied() - model == 4 * array);
    CHECK(rig->device.copies().in - before.in == 2 * array);
    CHECK(rig->device.copies().out - before.out == 4 * array);  // also what the test reads
  }
  const auto before = maps.device.copies();
  const auto model = maps.model->copied();
  maps.pass(2);
  CHECK(maps.model->copied() == model);
  CHECK(maps.device.copies().in == before.in);
  CHECK(maps.device.copies().out - before.out == array);
}

TEST_CASE("nothing is copied that grows with the model, where its memory can be mapped") {
  const Script script;
  Rig maps(spec_of(script)), copies(spec_of(script), /*shares=*/false);
  for (Rig* rig : {&maps, &copies}) {
    REQUIRE(rig->initialise());
    REQUIRE(rig->pass());
    REQUIRE(rig->pass(1));
  }
  CHECK(maps.model->copied() == 0);
  // The first parameters; then of two passes the parameters and the gradient.
  CHECK(copies.model->copied() == 5 * copies.layout.elements() * sizeof(float));
  CHECK(std::ranges::equal(maps.gradient, copies.gradient));
  CHECK(std::ranges::equal(maps.parameters.all(), copies.parameters.all()));
}

TEST_CASE("what the worker changes in its parameters is what the next pass computes from") {
  const Script script;
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  const double before = rig.pass().value().loss;
  const float slope = rig.gradient[0];
  rig.parameters.all()[0] -= 0.5f * slope;
  CHECK(rig.pass().value().loss < before);
  CHECK(rig.gradient[0] == 0);
}

TEST_CASE("a process that is lost is replaced, and the pass has the same bits") {
  const Script good;
  Rig undisturbed(spec_of(good));
  REQUIRE(undisturbed.initialise());
  for (const char* misfortune : {"dies 2", "exits 2", "babbles 2"}) {
    CAPTURE(misfortune);
    const Script script(misfortune);
    Rig rig(spec_of(script));
    REQUIRE(rig.initialise());
    for (std::uint64_t step = 0; step < 4; ++step) {
      const auto result = rig.pass(step), wanted = undisturbed.pass(step);
      REQUIRE(result);
      CHECK(result.value().loss == wanted.value().loss);
      CHECK(std::ranges::equal(rig.gradient, undisturbed.gradient));
    }
    CHECK(rig.lost.size() == 3);  // each process computes once
  }
}

TEST_CASE("a process that hangs is replaced when it takes many times as long as others did") {
  const Script script;
  script.say("hangs-once " + script.beside("hung"));
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  REQUIRE(rig.pass(0));
  REQUIRE(rig.pass(1));
  REQUIRE(rig.lost.size() == 1);
  CHECK(rig.lost[0] == "the script's process did not answer in time");
}

// Method: the process dies in its second pass, and a fork of it in another session, which has the
// process's end of the socket, lives on.
TEST_CASE("a process that dies is noticed though a fork of it lives on") {
  const Script script;
  script.say("forks-and-dies 2\nfork-is " + script.beside("fork"));
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  REQUIRE(rig.pass(0));
  REQUIRE(rig.pass(1));
  REQUIRE(rig.lost.size() == 1);
  CHECK(rig.lost[0] == "the script's process was ended by SIGKILL");
  pid_t fork = 0;
  std::ifstream(script.beside("fork")) >> fork;
  REQUIRE(fork > 0);
  CHECK(::kill(fork, SIGKILL) == 0);
}

// Goal: one hang does not make the worker patient with the next. Method: two processes hang, one after
// the other; only passes that were answered count.
TEST_CASE("what a lost process and the start of another took is no measure of passes") {
  const Script script;
  script.say("hangs-once " + script.beside("first") + "," + script.beside("second"));
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  CHECK(rig.model->processes().patience().of_pass(0) ==
        std::chrono::seconds(60));  // nothing is known yet
  std::chrono::milliseconds longest{0};
  for (std::uint64_t step = 0; step < 6; ++step) {
    const auto lost = rig.lost.size();
    const auto begun = std::chrono::steady_clock::now();
    REQUIRE(rig.pass(step));
    const auto took =
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    if (rig.lost.size() == lost) longest = std::max(longest, took);
    CHECK(rig.model->processes().patience().of_pass(0) <=
          std::max(std::chrono::milliseconds(1500), 20 * longest));
  }
  CHECK(rig.lost == std::vector<std::string>(2, "the script's process did not answer in time"));
}

// Goal: a script may evaluate all held-out data in one pass. Method: one takes longer than any pass
// that trains is given, when it is known how long those take.
TEST_CASE("a pass of held-out data has a patience of its own") {
  const Script script("evaluates 3");
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  for (std::uint64_t step = 0; step < 2; ++step) {
    REQUIRE(rig.pass(step));
    const auto evaluated = rig.pass(step, /*held_out=*/true);
    REQUIRE(evaluated);
    CHECK(evaluated.value().loss == 0.5);
  }
  CHECK(rig.lost.empty());
}

// Goal: no gradient is taken that is still being computed. Method: the reply to the second pass comes
// twice; the third pass finds the second of them.
TEST_CASE("a reply that answers another request is no reply") {
  const Script good, script("answers-twice 2");
  Rig undisturbed(spec_of(good)), rig(spec_of(script));
  REQUIRE(undisturbed.initialise());
  REQUIRE(rig.initialise());
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto result = rig.pass(step), wanted = undisturbed.pass(step);
    REQUIRE(result);
    CHECK(result.value().loss == wanted.value().loss);
    CHECK(std::ranges::equal(rig.gradient, undisturbed.gradient));
  }
  REQUIRE(rig.lost.size() == 1);
  CHECK(rig.lost[0].find("the script's process answered request ") == 0);
}

TEST_CASE("processes that were started before are there for as many threads") {
  const Script script;
  Rig rig(spec_of(script));
  REQUIRE(rig.model->processes().prepare(3));
  script.say("samples 41");  // another one is not like these
  REQUIRE(rig.initialise());
  const auto second = rig.model->make_workspace(2), third = rig.model->make_workspace(2);
  REQUIRE(rig.pass());
  Batch batch;
  batch.sequences = 2;
  batch.samples = {3, 17};
  for (const auto& workspace : {second.get(), third.get()})
    CHECK(rig.model->forward_backward(rig.parameters.all(), batch, *workspace, rig.gradient));
  const auto fourth = rig.model->make_workspace(2);
  CHECK(!rig.model->forward_backward(rig.parameters.all(), batch, *fourth, rig.gradient));
  CHECK(rig.lost.empty());
}

TEST_CASE("what a script raises is told at once, and no other process tries it again") {
  const Script script("raises 2");
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  REQUIRE(rig.pass());
  const auto raised = rig.pass();
  REQUIRE(!raised);
  CHECK(raised.error().code() == Code::kBadInput);
  CHECK(raised.error().text() == "ValueError: as the script says");
  CHECK(rig.lost.empty());
}

TEST_CASE("a script whose processes are all lost is an error that says how") {
  const Script script("exits 1");
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  const auto lost = rig.pass();
  REQUIRE(!lost);
  CHECK(lost.error().code() == Code::kUnavailable);
  CHECK(
      lost.error().text() ==
      "the script's process was lost 4 times in a row: the script's process ended with status 3; " +
          script.path());
}

TEST_CASE("a script whose model is not the job's is refused, and what differs is named") {
  const std::pair<const char*, const char*> cases[] = {
      {"tensors 1",
       "the script's model is not the job's: parameter 1 is not there here and b: in the job"},
      {"samples 41",
       "the script's model is not the job's: the number of samples is 41 here and 40 in the job"},
  };
  for (const auto& [orders, text] : cases) {
    const Script script(orders);
    Rig rig(spec_of(script));
    const auto refused = rig.initialise();
    REQUIRE(!refused);
    CHECK(refused.error().code() == Code::kBadInput);
    CHECK(refused.error().text() == text + ("; " + script.path()));
  }
}

TEST_CASE("parameters in another order than the job's are refused, and why is said") {
  const Script script("reversed");
  Rig rig(spec_of(script));
  const auto refused = rig.initialise();
  REQUIRE(!refused);
  CHECK(refused.error().text() ==
        "the script's parameters have another order in each process: modules that are registered "
        "from a set have none, use a list; " +
            script.path());
}

TEST_CASE("another version of what computes, in the middle of a run, is refused") {
  const Script script("dies 2");
  Rig rig(spec_of(script));
  REQUIRE(rig.initialise());
  REQUIRE(rig.pass());
  CHECK(rig.model->processes().versions() == "stand-in 1");
  script.say("versions other");
  const auto refused = rig.pass();
  REQUIRE(!refused);
  CHECK(refused.error().text() == "the script's process was stand-in 1 before and is other now");
}

// Goal: who takes a lost process's place is compared as the first one was, before its first pass.
TEST_CASE("a process that has other data, texts or bits than the one before it computes nothing") {
  const std::pair<const char*, const char*> cases[] = {
      {"data other", "other data, or other values of what is not trained,"},
      {"text other", "other modules, or other texts of them"},
      {"gradient other", "another first gradient"},
  };
  for (const auto& [orders, what] : cases) {
    CAPTURE(orders);
    const Script script("dies 1");
    Rig rig(spec_of(script));
    rig.begin_with_two_samples();
    REQUIRE(rig.initialise());
    script.say(orders);
    const auto refused = rig.pass();
    REQUIRE(!refused);
    CHECK(refused.error().code() == Code::kBadInput);
    CHECK(refused.error().text().starts_with(std::string("a process of the script has ") + what +
                                             " than the one before it ("));
    CHECK(rig.lost.size() == 1);
  }
}

// Method: 20 batches of 2 samples, of which the stand-in gives the digests 1, 2, .. 20.
TEST_CASE("the data are read beside passes, each batch once, and their digest is the sum") {
  for (const char* orders : {"reads", ""}) {
    CAPTURE(orders);
    const Script script(orders);
    Rig rig(spec_of(script));
    rig.begin_with_two_samples();
    REQUIRE(rig.initialise());
    CHECK(!rig.model->data().read().over);
    for (std::uint64_t step = 0; step < 100'000 && !rig.model->data().read().over; ++step)
      REQUIRE(rig.pass(step));
    const auto read = rig.model->data().read();
    CHECK(read.over);
    CHECK(read.digest == (*orders ? std::optional(Digest{210, 0}) : std::nullopt));
  }
}

TEST_CASE("an interpreter that is not there is an error that names it") {
  const Script script;
  const ScopedVariable nowhere("STARLING_PYTHON", "/nowhere/python");
  Rig rig(spec_of(script));
  const auto none = rig.initialise();
  REQUIRE(!none);
  CHECK(none.error().text().find("/nowhere/python: No such file or directory") !=
        std::string::npos);
}

}  // namespace
}  // namespace starling::actors::script
