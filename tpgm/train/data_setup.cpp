// A data set, split as the options say.
#include "tpgm/train/data_setup.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "tpgm/base/call.h"
#include "tpgm/base/hash.h"
#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/class_list.h"
#include "tpgm/train/test_paths.h"

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

// A test by the path of a data set of its own is the likeliest mistake.
void check_place(const std::string& test, const Dataset& data) {
  const auto known = [&](const Dataset::Part& part) {
    return part->domain == test || part->title() == test || part->split == test;
  };
  if (std::any_of(data.parts().begin(), data.parts().end(), known) || !fs::is_directory(test)) return;
  const fs::path name = fs::absolute(test).lexically_normal();
  TORCH_CHECK(false, "`test` ", printable(test), ": another data set is NAME=PATH: `test` ",
              (name.has_filename() ? name : name.parent_path()).filename().string(), "=", test);
}

// A data set of its own.
TestSet open_other(const OtherTest& test, const std::string& data_dir,
                   const std::vector<std::string>& classes, std::vector<std::string>* notes) {
  const auto& name = test.name;
  const auto folders = test_folders(data_dir);
  const auto places = places_of(test.path, folders);
  if (places.empty()) {
    TORCH_CHECK(!test.path.empty(), "`test` ", printable(name),
                "=: a path is missing, of the form NAME=PATH");
    TORCH_CHECK(test.path.is_relative() && folders.size() > 1, "`test` ", printable(name), ": there is no '",
                (folders.front() / test.path).string(), "'");
    TORCH_CHECK(false, "`test` ", printable(name), ": there is neither '", (folders[0] / test.path).string(),
                "' nor '", (fs::absolute(folders[1]) / test.path).string(),
                "'; paths are relative to the working folder, or else to `data-dir`");
  }
  const fs::path& path = places.front();
  if (places.size() > 1 && notes != nullptr)
    notes->push_back(fmt::format("test {}: '{}' is used, and not '{}' below `data-dir`", printable(name),
                                 path.string(), places[1].string()));
  const Dataset data(path.string(), DatasetOptions().classes(classes));
  if (data.parts().size() == 1) return {name, all_of(data.parts().front()), false, data.unread_note()};
  for (const char* split : {"test", "val", "validation"}) {
    if (const auto part = data.find("", split)) return {name, all_of(part), false, data.unread_note()};
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

// The first `own` tests are those of the training domains. `left_out` are names that may be in `id`, too.
void mark_id(std::vector<TestSet>& tests, const std::vector<std::string>& id, size_t own,
             std::vector<std::string> left_out = {}) {
  std::vector<std::string> names = std::move(left_out);
  for (size_t i = 0; i < tests.size(); ++i) {
    tests[i].id = id.empty() ? i < own : has(id, tests[i].name);
    names.push_back(tests[i].name);
  }
  for (const auto& name : id) {
    TORCH_CHECK(has(names, name), "`id` ", printable(name), " is not a test", did_you_mean(name, names));
  }
}

// Which classes occur.
std::vector<bool> classes_with_images(const Samples& samples) {
  std::vector<bool> occur(samples.classes.size());
  for (const auto label : samples.labels()) {
    if (label >= 0) occur[static_cast<size_t>(label)] = true;
  }
  return occur;
}

// Pairs of classes whose names differ only in case.
std::vector<std::pair<size_t, size_t>> alike_classes(const std::vector<std::string>& classes) {
  std::map<std::string, size_t> seen;
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto [first, fresh] = seen.emplace(lower(classes[i]), i);
    if (!fresh) pairs.emplace_back(first->second, i);
  }
  return pairs;
}

// The parts of a data set are matched by the names of their classes: "Dog" beside "dog" would be two classes,
// each trained on and tested on in other parts. Parts that have both mean it. Empty if there is no such pair.
std::string case_trouble(const Dataset& data) {
  const auto pairs = alike_classes(data.classes());
  if (pairs.empty()) return "";
  std::vector<std::vector<bool>> occur;
  for (const auto& part : data.parts()) occur.push_back(classes_with_images(*part));
  const auto only_in = [&](size_t one, size_t other) {
    const auto found =
        std::find_if(occur.begin(), occur.end(), [&](const auto& each) { return each[one] && !each[other]; });
    return found == occur.end() ? nullptr : data.parts()[static_cast<size_t>(found - occur.begin())];
  };
  for (const auto& [one, other] : pairs) {
    const auto first = only_in(one, other), second = only_in(other, one);
    if (first && second)
      return fmt::format("'{}': class '{}' of '{}' and '{}' of '{}' differ only in case", data.where(),
                         printable(data.classes()[one]), printable(first->title()),
                         printable(data.classes()[other]), printable(second->title()));
  }
  return "";
}

void warn(RunData& result, const std::string& text) {
  result.notes.push_back(text);
  result.warnings.push_back(text);
}

void add_class_notes(const Dataset& data, const TrainOptions& options, RunData& result) {
  const auto& classes = data.classes();
  if (const auto trouble = options.class_list.empty() ? case_trouble(data) : ""; !trouble.empty())
    warn(result, trouble + ", and are two classes");
  else if (const auto pairs = alike_classes(classes); !pairs.empty())
    result.notes.push_back(fmt::format(
        "'{}': the classes '{}' and '{}' differ only in case{}", data.where(),
        printable(classes[pairs[0].first]), printable(classes[pairs[0].second]),
        pairs.size() > 1
            ? fmt::format(", as {} more do", counted(static_cast<int64_t>(pairs.size()) - 1, "pair"))
            : ""));
  constexpr size_t kMostNamed = 3;
  const auto trained = classes_with_images(*result.train.samples);
  std::vector<bool> met(classes.size());
  const auto meet = [&](const Samples& samples) {
    const auto occur = classes_with_images(samples);
    for (size_t i = 0; i < occur.size(); ++i) met[i] = met[i] || occur[i];
  };
  for (const auto& part : data.parts()) meet(*part);
  for (const auto& test : result.tests) meet(*test.subset.samples);
  std::vector<std::string> missing;
  for (size_t i = 0; i < met.size(); ++i) {
    if (met[i] && !trained[i]) missing.push_back(printable(classes[i]));
  }
  const size_t count = missing.size();
  if (count == 0) return;
  missing.resize(std::min(count, kMostNamed));
  result.notes.push_back(fmt::format("train: {} has no image of {} of {}, which other parts have: {}{}",
                                     result.train.samples->title(), count,
                                     counted(static_cast<int64_t>(classes.size()), "class"),
                                     fmt::join(missing, ", "), count > kMostNamed ? ", …" : ""));
}

// Why nothing was held out of the training domain, and what helps. `key` is the option of the share, if it
// has one, and `split` a split of the data set that would take its place.
std::string nothing_held_out(const TrainOptions& options, const Samples& source, double share,
                             const std::string& key, const char* split) {
  std::vector<int64_t> sizes;  // of the classes of each domain
  const auto count = [&sizes](const Samples& domain) {
    const size_t begin = sizes.size();
    sizes.resize(begin + domain.classes.size());
    for (const auto label : domain.labels()) ++sizes[begin + static_cast<size_t>(label)];
  };
  for (const auto& part : source.parts()) count(*part);
  if (source.parts().empty()) count(source);
  std::erase(sizes, 0);
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  const std::string classes =
      fmt::format("classes of {}{}", *least == *most ? "" : fmt::format("{} to ", grouped(*least)),
                  counted(*most, "image"));
  const std::string what =
      key.empty() ? fmt::format("{:.3g} %", 100 * share) : fmt::format("`{}` {}", key, share);
  const std::string or_split = fmt::format("or give the data set a split '{}'", split);
  if (options.fraction < 1 && share * static_cast<double>(source.size()) >= 1)
    return fmt::format("`fraction` {} of {} leaves too few to hold out {}; raise `fraction`, {}",
                       options.fraction, classes, what, or_split);
  return fmt::format("{} of {} is none; {}, {}", what, classes,
                     key.empty() ? "add images" : fmt::format("raise `{}`", key), or_split);
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t i) {
      return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
    };
    const uint32_t lead = byte(0);
    const size_t size = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
    for (size_t i = 1; i < size; ++i) {
      if ((byte(i) & 0xC0) != 0x80) return false;
    }
    const uint32_t next = byte(1);
    const bool outside = (lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
                         (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F);
    if (size == 0 || outside) return false;
    at += size;
  }
  return true;
}

// Checkpoints and predictions could not hold other names: a run would fail only at its end.
void check_utf8(const RunData& data) {
  for (const auto& name : data.classes)
    TORCH_CHECK(is_utf8(name), "the class '", printable(name), "' is not UTF-8; rename its folder");
  for (const auto& test : data.tests)
    TORCH_CHECK(is_utf8(test.name), "the test set '", printable(test.name),
                "' is not UTF-8; rename its folder");
}

// The test `selection-part` becomes the selection data. The first `own` tests are those of the training domains.
void select_by_test(const TrainOptions& options, size_t own, RunData& result) {
  const auto& part = options.selection_part;
  TORCH_CHECK(
      !options.share_validation,
      "`share-validation` shares radius data with selection, and `selection-part` takes other images; leave "
      "out one of the two");
  const auto at = std::find_if(result.tests.begin(), result.tests.end(),
                               [&](const TestSet& test) { return test.name == part; });
  std::vector<std::string> names;
  for (size_t i = own; i < result.tests.size(); ++i) names.push_back(result.tests[i].name);
  TORCH_CHECK(at - result.tests.begin() >= static_cast<std::ptrdiff_t>(own) && at != result.tests.end(),
              "`selection-part` ", printable(part), " is not a test of another domain in `test`",
              did_you_mean(part, names));
  result.selection = std::move(at->subset);
  result.tests.erase(at);
  result.notes.push_back(fmt::format("selection: {}, {}, which is no test then (`selection-part`)",
                                     printable(part), counted(result.selection.size(), "image")));
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
  notes.push_back(
      fmt::format("share-validation: radii and selection use the same {}", counted(radius.size(), "image")));
}

}  // namespace

std::string few_images_note(const std::vector<TestSet>& tests) {
  constexpr int64_t kFew = 100;  // where the standard error of an accuracy reaches 5 points
  std::vector<std::string> few;
  for (const auto& test : tests) {
    const int64_t count = test.subset.size();
    if (count > 0 && count < kFew)
      few.push_back(fmt::format("{} has only {} ({:.3g} points each)", printable(test.name),
                                counted(count, "image"), 100.0 / static_cast<double>(count)));
  }
  if (few.empty()) return "";
  return fmt::format("test {} {}: too few to compare models",
                     few.size() == 1 ? "set" : "sets:", fmt::join(few, ", "));
}

Dataset open_dataset(const TrainOptions& options, DataUse use) {
  DatasetOptions given;
  if (!options.class_list.empty()) given.classes(load_class_list(options.class_list));
  Dataset data(options.data_dir, given);
  const bool checked = use == DataUse::kNewRun && options.class_list.empty();
  const std::string trouble = checked ? case_trouble(data) : "";
  TORCH_CHECK(trouble.empty(), "[open_dataset] ", trouble,
              ", and would be two classes; rename one, or list both with `class-list`");
  return data;
}

RunData open_data(const TrainOptions& options, const Dataset& data, DataUse use) try {
  RunData result;
  result.classes = data.classes();
  if (auto unread = data.unread_note(); !unread.empty()) result.notes.push_back(std::move(unread));
  for (const auto& note : data.notes())
    result.notes.push_back(fmt::format("'{}': {}", options.data_dir, note));

  const auto train =
      options.train.empty() ? std::vector<std::string>{only_training_part(data)} : options.train;
  const auto sources = training_parts(data, train);
  std::vector<Dataset::Part> own;  // the tests of the training domains, where they have some
  std::vector<std::string> own_names;
  for (const auto& source : sources) {
    auto& part = own.emplace_back();
    for (const char* split : {"test", "val", "validation"}) {
      if (!part) part = data.find(source->domain, split);
    }
    own_names.push_back(!source->domain.empty() ? source->domain : part ? part->title() : "test");
  }
  std::vector<std::string> names = train;
  for (const auto& test : options.test) {
    if (other_test(test)) continue;
    check_place(test, data);
    size_t i = 0;
    while (i < train.size() && test != train[i] && test != sources[i]->domain &&
           (!own[i] || test != own[i]->title()))
      ++i;
    if (i < train.size())
      own_names[i] = test;
    else
      names.push_back(test);
  }
  auto task = make_task(data, train, names,
                        SplitOptions()
                            .fraction(options.fraction)
                            .radius(options.radius_fraction)
                            .selection(options.selection_part.empty() ? options.selection_fraction : 0)
                            .seed(static_cast<uint64_t>(options.split_seed)));
  result.train = std::move(task.train);
  result.radius = std::move(task.radius);
  result.selection = std::move(task.selection);
  for (auto& note : task.notes) {
    if (note.starts_with("selection: ") && !options.selection_part.empty()) continue;
    if (!note.starts_with("test: ")) result.notes.push_back(std::move(note));  // of which less may be used
  }
  std::vector<std::string> left_out;
  std::string empty;
  for (size_t i = 0; i < task.tests.size(); ++i) {
    auto& [name, subset] = task.tests[i];
    if (i < train.size()) {
      name = own_names[i];
      if (subset.size() == 0) {
        empty = fmt::format("the test set {} is empty: {}", printable(name),
                            nothing_held_out(options, *sources[i], kTestShare, "", "test"));
        warn(result, empty + "; it is left out");
        left_out.push_back(name);
        continue;
      }
    }
    result.tests.push_back({name, part_of_test(std::move(subset), options), false, data.unread_note()});
  }
  for (const auto& test : options.test) {
    if (const auto other = other_test(test)) {
      std::vector<std::string> ambiguous;
      result.tests.push_back(open_other(*other, options.data_dir, result.classes, &ambiguous));
      for (const auto& text : ambiguous) warn(result, text);
      auto& [name, subset, id, unread] = result.tests.back();
      subset = part_of_test(std::move(subset), options);
      if (!unread.empty() && !has(result.notes, unread)) result.notes.push_back(unread);
    }
  }
  const size_t own_tests = train.size() - left_out.size();
  if (!options.selection_part.empty()) {
    select_by_test(options, own_tests, result);
    left_out.push_back(options.selection_part);
  }
  TORCH_CHECK(!result.tests.empty() || use == DataUse::kOlderRun, empty);
  check_others(result);
  if (use == DataUse::kNewRun) check_utf8(result);
  if (options.share_validation) share_held_out(result.radius, result.selection, result.notes);
  mark_id(result.tests, options.id, own_tests, left_out);
  for (const auto& test : result.tests) {
    result.notes.push_back(fmt::format("test {} ({}): {}, {}", test.name, test.id ? "ID" : "OOD",
                                       test.subset.samples->title(), counted(test.subset.size(), "image")));
  }
  if (auto note = few_images_note(result.tests); !note.empty()) result.notes.push_back(std::move(note));
  add_class_notes(data, options, result);
  return result;
} catch (...) {
  rethrow_from("open_data");
}

RunData open_data(const TrainOptions& options, const std::vector<std::string>& classes, DataUse use) try {
  return open_data(options, Dataset(options.data_dir, DatasetOptions().classes(classes)), use);
} catch (...) {
  rethrow_from("open_data");
}

std::vector<TestSet> open_tests(const TrainOptions& options, const std::vector<std::string>& classes) try {
  if (!options.train.empty()) return open_data(options, classes, DataUse::kOlderRun).tests;
  std::vector<TestSet> tests;
  std::optional<Dataset> data;
  for (const auto& test : options.test) {
    if (const auto other = other_test(test)) {
      tests.push_back(open_other(*other, options.data_dir, classes, nullptr));
    } else {
      if (!data) data.emplace(options.data_dir, DatasetOptions().classes(classes));
      tests.push_back({test, all_of(data->part(test, Role::kTest)), false, data->unread_note()});
    }
    tests.back().subset = part_of_test(std::move(tests.back().subset), options);
  }
  mark_id(tests, options.id, 0);
  return tests;
} catch (...) {
  rethrow_from("open_tests");
}

std::string no_radius_data(const TrainOptions& options, const RunData& data) {
  if (options.radius_fraction == 0) return "`radius-fraction` 0.1 holds some out";
  return nothing_held_out(options, *data.train.samples, options.radius_fraction, "radius-fraction", "radius");
}

std::string left_out_note(const TrainOptions& options, const RunData& data) {
  const int64_t of_step = options.batch_size * options.grad_accum_steps, all = data.train.size();
  const int64_t left_out = all - std::max<int64_t>(1, all / of_step) * of_step;
  if (10 * left_out < all) return "";
  return fmt::format("{} of {} {} left out of each epoch, which has whole {} only", grouped(left_out),
                     counted(all, "image"), left_out == 1 ? "is" : "are",
                     options.grad_accum_steps > 1 ? "steps" : "batches");
}

std::string fingerprint_of(const RunData& data) {
  uint64_t hash = fnv1a("");
  const auto add = [&hash](std::string_view bytes) { hash = fnv1a(bytes, hash); };
  for (const auto* subset : {&data.train, &data.radius, &data.selection}) {
    add(fmt::format("{};", subset->size()));
    // Images of two domains may have the same names.
    if (subset->samples && !subset->samples->parts().empty()) add(subset->samples->title() + ";");
    for (const int64_t i : subset->indices) {
      add(subset->samples->name(i));
      add(fmt::format(":{};", subset->samples->label(i)));
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace tpgm
