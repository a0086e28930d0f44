#pragma once
// `starling check` can read what training leaves: a model file, a folder of checkpoints.

#include <string>

namespace starling::tools {

// A model file's metadata have these keys: the digest of its parameters; the names of its
// tensors in the order in which the job cuts them into segments, as JSON (files of earlier builds: with
// commas); the layer of each, behind which an r says that it is cut by rows (TensorSpec), with commas;
// their shapes, as JSON; and the digest of the job's end, which says whose model this is. Where a script
// has made the file whole, also which of the other tensors are the same as one of these, as a JSON
// object (tools/python/starling/model_file.py).
inline constexpr const char* kParametersKey = "starling_parameters";
inline constexpr const char* kOrderKey = "starling_order";
inline constexpr const char* kLayersKey = "starling_layers";
inline constexpr const char* kShapesKey = "starling_shapes";
inline constexpr const char* kTiedKey = "starling_tied";
inline constexpr const char* kEndKey = "starling_digest";

// Returns whether it is a model file that a worker has saved.
bool is_trained_model(const std::string& path);
// Reads the whole file; compares its digest and shapes with those in it, and tied tensors with theirs; of
// the other tensors looks for NaNs, and names them. Returns the exit code.
int check_trained_model(const std::string& path);
// Checks all checkpoints in the folder, shards and digests included. Returns the exit code.
int check_checkpoints(const std::string& dir);

}  // namespace starling::tools
