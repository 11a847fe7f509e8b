// A data set: named parts (domains and splits) with one list of classes.
#pragma once

#include <torch/arg.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tpgm/data/formats/format.h"
#include "tpgm/data/samples.h"

namespace tpgm {

struct DatasetOptions {
  /// The classes in the order of a model's outputs; empty: the classes of the data set.
  TORCH_ARG(std::vector<std::string>, classes);
};

/// What a part is for: decides which split a domain's name without a split stands for (Dataset::part()).
enum class Role { kTrain, kTest };

struct FoundParts;

class Dataset {
 public:
  using Part = std::shared_ptr<const Samples>;

  /// `where` is a folder of class folders (sources/folder.h), of list files (sources/list.h) or of tar shards
  /// (sources/tar.h); or a single list, tar or image; or a pattern of tars ("train-{000..146}.tar"). If a
  /// folder has several of these, labeled tars take precedence over lists, and lists over folders, since
  /// lists often lie beside the folders whose images they name.
  ///
  /// The classes of all parts are joined: named classes are sorted; in list files, a label is a position.
  /// Throws if two lists give one label different names, and for all that cannot be read.
  explicit Dataset(const std::string& where, const DatasetOptions& options = {});

  /// This data set as if it were opened with these classes. Reads nothing again.
  Dataset with_classes(const std::vector<std::string>& classes) const;

  const std::string& where() const { return where_; }
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<Part>& parts() const { return parts_; }
  /// Notes for the user: what was found and left out.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Its images of formats that are not read, by their suffixes, and a sentence on them: unread_text().
  const UnreadFiles& unread() const;
  std::string unread_note() const;

  /// "real/test" is exactly that part. "real" is the domain's only part, or its split for the role: train, or
  /// the first of test, val and validation. Throws for an unknown name, and suggests the nearest.
  Part part(const std::string& name, Role role) const;
  /// The part with this domain and split; null if there is none.
  Part find(const std::string& domain, const std::string& split) const;
  /// The names of all parts, as part() takes them: "real/train", "real/test", "sketch".
  std::vector<std::string> titles() const;

 private:
  Dataset(std::string where, std::shared_ptr<const FoundParts> found,
          const std::vector<std::string>& classes);

  std::shared_ptr<const FoundParts> found_;  // as they are on the disk, each with its own classes
  std::string where_;
  std::vector<std::string> classes_;
  std::vector<Part> parts_;
  std::vector<std::string> notes_;
};

}  // namespace tpgm
