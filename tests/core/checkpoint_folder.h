#pragma once
// A folder of checkpoints, and the store that it is; removed with the object.

#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/formats/storage.h"

namespace starling {

struct CheckpointFolder {
  CheckpointFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "starling-checkpoint-XXXXXX").string();
    path = ::mkdtemp(name.data());
    storage = open_storage(path);
  }
  ~CheckpointFolder() { std::filesystem::remove_all(path); }
  std::string path;
  std::unique_ptr<Storage> storage;
};

}  // namespace starling
