// A data set, split as the options say.
#include "tpgm/train/data_setup.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/hash.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/class_list.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

bool has(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// The fraction of each class of a test that the options ask for.
SampleSubset part_of_test(SampleSubset subset, const TrainOptions& options) {
  return thinned(std::move(subset), options.test_fraction, static_cast<uint64_t>(options.split_seed));
}

// Tests from elsewhere must not be what is trained on, and every test needs a name of its own.
void check_others(const RunData& data) {
  std::vector<std::pair<std::string, const SampleSubset*>> all = {
      {"train", &data.train}, {"radius", &data.radius}, {"selection", &data.selection}};
  std::set<std::string> names;
  for (const auto& test : data.tests) {
    TORCH_CHECK(names.insert(test.name).second, "`test`: there are two called '", printable(test.name), "'");
    all.emplace_back("test " + test.name, &test.subset);
  }
  for (const auto& [name, subset] : all) {
    if (subset->samples == nullptr) return;
  }
  check_disjoint(all);
}

// "v2=../imagenetv2": a test in a data set of its own.
std::optional<std::pair<std::string, fs::path>> elsewhere(const std::string& test,
                                                          const std::string& data_dir) {
  const size_t at = test.find('=');
  if (at == std::string::npos) return std::nullopt;
  const fs::path path = test.substr(at + 1);
  return std::pair{test.substr(0, at), path.is_absolute() ? path : fs::path(data_dir) / path};
}

// A test by the path of a data set of its own is the likeliest mistake.
void check_place(const std::string& test, const std::string& data_dir, const Dataset& data) {
  const auto known = [&](const Dataset::Part& part) {
    return part->domain == test || part->title() == test || part->split == test;
  };
  if (std::any_of(data.parts().begin(), data.parts().end(), known) || !fs::is_directory(test)) return;
  const fs::path path = fs::relative(test, data_dir);
  const fs::path name = fs::absolute(test).lexically_normal();
  TORCH_CHECK(false, "`test` ", printable(test),
              ": another data set is NAME=PATH, the path from `data-dir`: `test` ",
              (name.has_filename() ? name : name.parent_path()).filename().string(), "=", path.string());
}

SampleSubset open_elsewhere(const std::string& name, const fs::path& path,
                            const std::vector<std::string>& classes) {
  const Dataset data(path.string(), DatasetOptions().classes(classes));
  if (data.parts().size() == 1) return all_of(data.parts().front());
  for (const char* split : {"test", "val", "validation"}) {
    if (const auto part = data.find("", split)) return all_of(part);
  }
  TORCH_CHECK(false, "`test` ", name, ": '", path.string(), "' has the parts ",
              fmt::format("{}", fmt::join(data.titles(), ", ")), "; give the folder of one");
}

// The domain to train on if the options name none.
std::string only_training_part(const Dataset& data) {
  std::vector<std::string> titles;
  for (const auto& part : data.parts()) {
    if (part->split == "train") titles.push_back(part->domain.empty() ? part->title() : part->domain);
  }
  if (titles.empty() && data.parts().size() == 1) return data.parts().front()->title();
  TORCH_CHECK(titles.size() == 1, "`train`: '", data.where(), "' has the parts ",
              fmt::format("{}", fmt::join(data.titles(), ", ")), "; say which to train on");
  return titles.front();
}

void mark_id(std::vector<TestSet>& tests, const std::vector<std::string>& id, size_t own) {
  std::vector<std::string> names;
  for (size_t i = 0; i < tests.size(); ++i) {
    tests[i].id = id.empty() ? i == own : has(id, tests[i].name);
    names.push_back(tests[i].name);
  }
  for (const auto& name : id) {
    TORCH_CHECK(has(names, name), "`id` ", printable(name), " is no test; did you mean '",
                nearest(name, names), "'?");
  }
}

// Both held-out sets become their union.
void share_held_out(SampleSubset& radius, SampleSubset& selection, std::vector<std::string>& notes) {
  if (radius.indices.empty()) radius = selection;
  TORCH_CHECK(selection.indices.empty() || radius.samples == selection.samples,
              "`share-validation`: radius and selection data are two parts of the data set; join them there");
  if (!selection.indices.empty() && radius.indices != selection.indices) {
    radius.indices.insert(radius.indices.end(), selection.indices.begin(), selection.indices.end());
    std::sort(radius.indices.begin(), radius.indices.end());
  }
  selection = radius;
  notes.push_back(fmt::format("share-validation: radii and selection use the same {} images", radius.size()));
}

}  // namespace

std::string few_images_note(const TestSet& test) {
  constexpr int64_t kFew = 100;  // where the standard error of an accuracy reaches 5 points
  const int64_t count = test.subset.size();
  if (count >= kFew) return "";
  return fmt::format(
      "test {} has {} image{}: one of them is {:.3g} points of accuracy, too coarse to compare with",
      test.name, count, count == 1 ? "" : "s", 100.0 / static_cast<double>(count));
}

Dataset open_dataset(const TrainOptions& options) {
  DatasetOptions given;
  if (!options.class_list.empty()) given.classes(load_class_list(options.class_list));
  return Dataset(options.data_dir, given);
}

RunData open_data(const TrainOptions& options, const Dataset& data) try {
  RunData result;
  result.classes = data.classes();
  for (const auto& note : data.notes())
    result.notes.push_back(fmt::format("'{}': {}", options.data_dir, note));

  const std::string train = options.train.empty() ? only_training_part(data) : options.train;
  const auto source = data.part(train, Role::kTrain);
  Dataset::Part own;
  for (const char* split : {"test", "val", "validation"}) {
    if (!own) own = data.find(source->domain, split);
  }
  std::vector<std::string> names = {train};
  std::string own_name = !source->domain.empty() ? source->domain : own ? own->title() : "test";
  for (const auto& test : options.test) {
    if (elsewhere(test, options.data_dir)) continue;
    check_place(test, options.data_dir, data);
    const bool is_own = test == train || test == source->domain || (own && test == own->title());
    if (is_own) own_name = test;
    if (!is_own) names.push_back(test);
  }
  auto task = make_task(data, train, names,
                        SplitOptions()
                            .fraction(options.fraction)
                            .radius(options.radius_fraction)
                            .selection(options.selection_fraction)
                            .seed(static_cast<uint64_t>(options.split_seed)));
  result.train = std::move(task.train);
  result.radius = std::move(task.radius);
  result.selection = std::move(task.selection);
  for (auto& note : task.notes) {
    if (!note.starts_with("test: ")) result.notes.push_back(std::move(note));  // of which less may be used
  }
  task.tests.front().first = own_name;
  for (auto& [name, subset] : task.tests)
    result.tests.push_back({name, part_of_test(std::move(subset), options)});
  for (const auto& test : options.test) {
    if (const auto other = elsewhere(test, options.data_dir))
      result.tests.push_back(
          {other->first, part_of_test(open_elsewhere(other->first, other->second, result.classes), options)});
  }
  check_others(result);
  if (options.share_validation) share_held_out(result.radius, result.selection, result.notes);
  mark_id(result.tests, options.id, 0);
  for (const auto& test : result.tests) {
    result.notes.push_back(fmt::format("test {} ({}): {}, {} images", test.name, test.id ? "ID" : "OOD",
                                       test.subset.samples->title(), test.subset.size()));
    if (auto note = few_images_note(test); !note.empty()) result.notes.push_back(std::move(note));
  }
  return result;
} catch (...) {
  rethrow_from("open_data");
}

RunData open_data(const TrainOptions& options, const std::vector<std::string>& classes) try {
  return open_data(options, Dataset(options.data_dir, DatasetOptions().classes(classes)));
} catch (...) {
  rethrow_from("open_data");
}

std::vector<TestSet> open_tests(const TrainOptions& options, const std::vector<std::string>& classes) try {
  if (!options.train.empty()) return open_data(options, classes).tests;
  std::vector<TestSet> tests;
  std::optional<Dataset> data;
  for (const auto& test : options.test) {
    if (const auto other = elsewhere(test, options.data_dir)) {
      tests.push_back({other->first, open_elsewhere(other->first, other->second, classes)});
    } else {
      if (!data) data.emplace(options.data_dir, DatasetOptions().classes(classes));
      tests.push_back({test, all_of(data->part(test, Role::kTest))});
    }
    tests.back().subset = part_of_test(std::move(tests.back().subset), options);
  }
  mark_id(tests, options.id, tests.size());
  return tests;
} catch (...) {
  rethrow_from("open_tests");
}

std::string fingerprint_of(const RunData& data) {
  uint64_t hash = fnv1a("");
  const auto add = [&hash](std::string_view bytes) { hash = fnv1a(bytes, hash); };
  for (const auto* subset : {&data.train, &data.radius, &data.selection}) {
    add(fmt::format("{};", subset->size()));
    for (const int64_t i : subset->indices) {
      add(subset->samples->name(i));
      add(fmt::format(":{};", subset->samples->label(i)));
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace tpgm
