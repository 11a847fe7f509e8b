// A data set: named parts, one list of classes.
#pragma once

#include <torch/arg.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tpgm/data/samples.h"

namespace tpgm {

struct DatasetOptions {
  /// The classes in the order a model knows them; empty: as the data set has them.
  TORCH_ARG(std::vector<std::string>, classes);
};

/// Which split of a domain a name without one stands for.
enum class Role { kTrain, kTest };

struct FoundParts;

class Dataset {
 public:
  using Part = std::shared_ptr<const Samples>;

  /// `where` is a folder of class folders (image_folder.h), of list files (image_list.h) or of tar shards
  /// (tar_shards.h), one list, tar or image, or a pattern of tars ("train-{000..146}.tar"). In a folder
  /// labelled tars come before lists, and lists before folders, since lists often lie beside the folders they
  /// choose from.
  ///
  /// Class lists of all parts are joined: names by name, sorted; numbers of list files are positions, and
  /// lists that give one number two names are an error, as is all else that cannot be read.
  explicit Dataset(const std::string& where, const DatasetOptions& options = {});

  /// The same with the classes in this order, as if it were opened with them; nothing is read again.
  Dataset with_classes(const std::vector<std::string>& classes) const;

  const std::string& where() const { return where_; }
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<Part>& parts() const { return parts_; }
  /// For the user to read: what was found and not taken.
  const std::vector<std::string>& notes() const { return notes_; }

  /// "real": that domain's only part, or of several splits the one for the role (train; test, else val,
  /// else validation). "real/test": exactly that one. A name that is not there is an error with the nearest.
  Part part(const std::string& name, Role role) const;
  /// The same, or nothing.
  Part find(const std::string& domain, const std::string& split) const;
  /// "real/train, real/test, sketch", as part() takes them.
  std::vector<std::string> titles() const;

 private:
  Dataset(std::string where, std::shared_ptr<const FoundParts> found,
          const std::vector<std::string>& classes);

  std::shared_ptr<const FoundParts> found_;  // as they are on the disk, with classes of their own
  std::string where_;
  std::vector<std::string> classes_;
  std::vector<Part> parts_;
  std::vector<std::string> notes_;
};

}  // namespace tpgm
