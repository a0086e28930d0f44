#pragma once
// A folder of data files for tests, removed with the object, and the job that reads one of them.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/job/job.h"

namespace starling {

class DataFolder {
 public:
  DataFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("starling_data_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~DataFolder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Job job_for(DataKind kind, const std::string& path, std::uint32_t context,
                   std::uint32_t vocabulary) {
  Job job;
  job.steps = 10;
  job.micro_batches = 3;
  job.micro_batch_sequences = 2;
  job.model = GptSpec{1, 1, 8, context, vocabulary};
  job.data = {kind, path, {}};
  return job;
}

}  // namespace starling
