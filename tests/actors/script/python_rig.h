#pragma once
// A script's model for tests, computed by real child processes: tests/stand_in is in the place of
// the package, so no torch is needed. tests/pytorch has the package itself.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/script/python_model.h"
#include "kernels/device/array.h"
#include "kernels/device/emulated.h"
#include "kernels/models/host_maker.h"
#include "tests/scoped_variable.h"

namespace starling::actors::script {

namespace fs = std::filesystem;
using namespace kernels;  // of tests alone

// A script of orders for the stand-in, in a folder that goes with it.
class Script {
 public:
  explicit Script(const std::string& orders = "")
      : folder_((fs::temp_directory_path() / "starling-script-XXXXXX").string()) {
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    ::setenv("PYTHONPATH", fs::absolute("tests/stand_in").c_str(), 1);
    std::ofstream(path()) << orders << "\n";
  }
  ~Script() { fs::remove_all(folder_); }
  std::string path() const { return folder_ + "/orders"; }
  std::string beside(const char* name) const { return folder_ + "/" + name; }
  // A package, of_a_package.
  void install(const char* text) const {
    fs::create_directory(beside("site-packages"));
    std::ofstream(beside("site-packages/of_a_package.py")) << text << "\n";
    const std::string path = std::getenv("PYTHONPATH");
    ::setenv("PYTHONPATH", (path + ":" + beside("site-packages")).c_str(), 1);
  }
  void say(const std::string& orders) const { std::ofstream(path()) << orders << "\n"; }

 private:
  std::string folder_;
  const ScopedVariable python_{"STARLING_PYTHON", std::nullopt};
};

inline PythonSpec spec_of(const Script& script) {
  return {.script = script.path(), .samples = 40, .tensors = {"a:3x2", "b:"}, .patience_s = 60};
}

struct Rig {
  explicit Rig(const PythonSpec& spec, bool shares = true)
      : model(make_python_model(spec, "avx2").value()),
        device(open_device("auto", {shares}).value()),
        layout(model->tensors()),
        parameters(Array<float>::shared(*device, layout.elements())),
        gradient(layout.elements()),
        maker(*model, layout, *device, 2) {
    model->processes().on_lost([this](const std::string& why) { lost.push_back(why); });
  }
  void begin_with_two_samples() {
    Batch first;
    first.sequences = 2;
    first.samples = {0, 1};
    model->begin_with(first);
  }
  Result<> initialise() { return model->initialise(5, layout, parameters); }
  Result<MicroBatchResult> pass(std::uint64_t step = 0, bool held_out = false) {
    Batch batch;
    batch.sequences = 2;
    batch.samples = {3, 17};
    batch.draw = {5, step, 1};
    batch.held_out = held_out;
    PassHooks hooks;
    hooks.take = [this](PartId, std::uint32_t, const float* made) {
      std::copy_n(made, gradient.size(), gradient.data());
    };
    return maker.make({parameters.data(), nullptr, 0, parameters.place()}, batch, hooks);
  }

  std::unique_ptr<PythonModel> model;
  std::shared_ptr<Device> device;
  Layout layout;
  Array<float> parameters;
  std::vector<float> gradient;
  HostMaker maker;
  std::vector<std::string> lost;
};

}  // namespace starling::actors::script
