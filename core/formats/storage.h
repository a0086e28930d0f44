#pragma once
// Storage is where checkpoints lie: named objects, each there whole or not at all.
//
// A name is relative, with '/' between its folders: "step-000000040/manifest.json". What consists of
// several objects is published by one that is put last and names the others, as a manifest does; readers
// believe no object that it does not name. So a store is never asked to rename, to link or to append, nor
// to put two objects at once, and one that cannot do these will do.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling {

// A StoredObject is open to read parts of it. Threads: const functions from any thread.
class StoredObject {
 public:
  virtual ~StoredObject() = default;
  virtual std::uint64_t size() const = 0;
  // Reads bytes [from, from + out.size()). Errors: kBadInput  it is shorter now, or cannot be read.
  virtual Result<> read(std::uint64_t from, std::span<std::uint8_t> out) const = 0;
  // As read(), of a caller that does not come back for what lies behind, and that asks again itself: not a byte more is
  // asked for, and a store that is away is asked once.
  virtual Result<> read_alone(std::uint64_t from, std::span<std::uint8_t> out) const {
    return read(from, out);
  }
  virtual const std::string& place() const = 0;  // for people
};

// Each function blocks for the store. Threads: any, also several at once. Errors: besides those
// named at each function, kUnavailable  a store behind a network is down, or does not answer.
class Storage {
 public:
  virtual ~Storage() = default;

  // Makes the store if it is not there, and sees whether objects can be put into it.
  // Errors: kBadInput  they cannot.
  virtual Result<> make() = 0;

  // Puts the pieces, one behind the other, in the place of the object of this name, if there is one.
  // On return it is durable, and each reader sees the whole of it. Errors: kBadInput  it cannot be
  // written; what was there stays, and nothing else is left.
  virtual Result<> put(const std::string& name, std::span<const ByteView> pieces) = 0;
  // Puts the text if there is no object of this name: of several calls at once, one returns true.
  // A reader may find a part of the text meanwhile, where the store cannot do better.
  virtual Result<bool> put_new(const std::string& name, const std::string& text) = 0;

  // Returns a whole object as text, cut behind `max` + 1 bytes; none: there is none of this name.
  // Errors: kBadInput  it cannot be read, or is no object.
  virtual Result<std::optional<std::string>> get(const std::string& name,
                                                 std::size_t max) const = 0;
  // Null: there is none of this name. Errors: as get().
  virtual Result<std::unique_ptr<StoredObject>> open(const std::string& name) const = 0;
  // None: there is none of this name. Errors: kBadInput  that cannot be told.
  virtual Result<std::optional<std::uint64_t>> size(const std::string& name) const = 0;

  // Returns the folders in the root, without what they hold, in no order; none if there is no store.
  // Errors: kBadInput  it cannot be read.
  virtual Result<std::vector<std::string>> folders() const = 0;

  // As put() of one text, and tried once: a caller that replaces what it has read reads the object again before
  // another try, as another process may have replaced it meanwhile.
  virtual Result<> replace(const std::string& name, const std::string& text) = 0;

  // Removes one object, if it is there. Errors: kBadInput  it stays.
  virtual Result<> remove(const std::string& name) = 0;
  // Removes all of a folder. What cannot be removed stays.
  // Errors: kUnavailable  the store is away, and has not been asked for the rest.
  virtual Result<> remove_folder(const std::string& folder) = 0;

  // Returns where an object is, for people; without a name the store.
  virtual std::string place(const std::string& name = {}) const = 0;
};

// Returns the store that a person has named, as open_storage() takes it: a folder, whole and without '/' at
// its end, or s3://BUCKET/PREFIX. Errors: kBadInput  s3:// and no address behind it.
Result<std::string> storage_named(const std::string& dir);

// The store behind a job's [checkpoint] dir: a folder of a file system, which machines may share, or
// s3://BUCKET/PREFIX (core/formats/s3). Opening touches nothing. `dir`: as of
// storage_named().
std::unique_ptr<Storage> open_storage(const std::string& dir);

// From now on a store behind a network is asked once for each thing, and not waited for: the process ends.
void hurry_storage();

// Whether this process may write into a store behind a network, by a small object that goes again; a folder is not
// looked at. Errors: kBadInput  it may not: no key, or one without rights. A store that is away is no error.
Result<> may_write(const std::string& dir);

// One file of a file system, which need not lie in a store. Null: it does not exist. Errors: as
// Storage::get().
Result<std::unique_ptr<StoredObject>> open_file(const std::string& path);

}  // namespace starling
