// Distributes the images of each class over the subsets, by shares and at random.
#include "tpgm/data/split.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <unordered_map>

#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/random.h"

namespace tpgm {
namespace {

constexpr uint64_t kPurpose = 0x5b117, kThinning = 0x7b177;  // of the random streams

bool is_share(double value) { return value >= 0 && value < 1; }

// Shares of numbers that come one after another: the sum is rounded, not each, from a random start, so that
// which class gets the odd image is the seed's choice. What a class must have in any case is not set off
// against the next.
class Share {
 public:
  Share(double share, uint64_t seed, uint64_t kind, uint64_t purpose = kPurpose)
      : share_(share), sum_(Random(seed, 1, kind, purpose).uniform()) {}
  int64_t of(int64_t count) {
    const double before = sum_;
    sum_ += share_ * static_cast<double>(count);
    return static_cast<int64_t>(std::floor(sum_ + kRounding) - std::floor(before + kRounding));
  }

 private:
  static constexpr double kRounding = 1e-9;  // a tenth ten times is one

  double share_, sum_;
};

// The images of each class; last those without a label.
std::vector<std::vector<int64_t>> by_label(const SampleSubset& subset) {
  const size_t classes = subset.samples->classes.size();
  std::vector<std::vector<int64_t>> result(classes + 1);
  for (const int64_t i : subset.indices) {
    const int64_t label = subset.samples->label(i);
    result[label < 0 ? classes : static_cast<size_t>(label)].push_back(i);
  }
  return result;
}

}  // namespace

SampleSubset all_of(Dataset::Part samples) {
  SampleSubset subset{std::move(samples), {}};
  subset.indices.resize(static_cast<size_t>(subset.samples->size()));
  std::iota(subset.indices.begin(), subset.indices.end(), 0);
  return subset;
}

Split split(const Dataset::Part& samples, const SplitOptions& options) {
  const double held_out = options.radius() + options.selection() + options.test();
  TORCH_CHECK(options.fraction() > 0 && options.fraction() <= 1, "[split] fraction ", options.fraction(),
              " must be above 0 and at most 1");
  TORCH_CHECK(
      is_share(options.radius()) && is_share(options.selection()) && is_share(options.test()) && held_out < 1,
      "[split] radius ", options.radius(), ", selection ", options.selection(), " and test ", options.test(),
      " must be shares from 0 to below 1, together below 1");
  auto by_class = by_label(all_of(samples));

  Split result;
  const uint64_t seed = options.seed();
  Share shares[] = {Share(options.radius(), seed, 0), Share(options.selection(), seed, 1),
                    Share(options.test(), seed, 2)};
  SampleSubset* held[] = {&result.radius, &result.selection, &result.test};
  Share used(options.fraction(), seed, 3);
  for (size_t label = 0; label < by_class.size(); ++label) {
    auto& images = by_class[label];
    if (images.empty()) continue;
    Random(options.seed(), 0, label, kPurpose).shuffle(images);
    const auto count = std::max<int64_t>(used.of(static_cast<int64_t>(images.size())), 1);
    int64_t at = 0;
    for (int kind = 0; kind < 3; ++kind) {
      const int64_t take = std::min(shares[kind].of(count), count - 1 - at);
      held[kind]->indices.insert(held[kind]->indices.end(), images.begin() + at, images.begin() + at + take);
      at += take;
    }
    result.train.indices.insert(result.train.indices.end(), images.begin() + at, images.begin() + count);
  }
  for (SampleSubset* subset : {&result.train, &result.radius, &result.selection, &result.test}) {
    subset->samples = samples;
    std::sort(subset->indices.begin(), subset->indices.end());
  }
  return result;
}

SampleSubset thinned(SampleSubset subset, double fraction, uint64_t seed) {
  TORCH_CHECK(fraction > 0 && fraction <= 1, "[thinned] fraction ", fraction,
              " must be above 0 and at most 1");
  if (fraction == 1) return subset;
  // A stream apart from the split's: what a part holds out of a class is a run of the split's order.
  Share kept(fraction, seed, 0, kThinning);
  auto by_class = by_label(subset);
  subset.indices.clear();
  for (size_t label = 0; label < by_class.size(); ++label) {
    auto& images = by_class[label];
    if (images.empty()) continue;
    Random(seed, 0, label, kThinning).shuffle(images);
    const auto count = std::max<int64_t>(kept.of(static_cast<int64_t>(images.size())), 1);
    subset.indices.insert(subset.indices.end(), images.begin(), images.begin() + count);
  }
  std::sort(subset.indices.begin(), subset.indices.end());
  return subset;
}

void check_disjoint(const std::vector<std::pair<std::string, const SampleSubset*>>& subsets) {
  const std::string here = std::filesystem::current_path().string() + "/";
  std::unordered_map<std::string, size_t> seen;
  for (size_t which = 0; which < subsets.size(); ++which) {
    for (const int64_t i : subsets[which].second->indices) {
      const Samples& samples = *subsets[which].second->samples;
      std::string place = samples.place(i);
      if (samples.in_files()) {
        if (!place.starts_with('/')) place = here + place;
        const bool plain = place.find("/.") == std::string::npos && place.find("//") == std::string::npos;
        if (!plain) place = std::filesystem::path(place).lexically_normal().string();
      }
      const auto [at, fresh] = seen.emplace(std::move(place), which);
      TORCH_CHECK(fresh, "[check_disjoint] '", printable(at->first, kMaxPath), "' is in ",
                  subsets[at->second].first,
                  at->second == which ? " twice" : " and in " + subsets[which].first,
                  "; an image may be in one place only");
    }
  }
}

TaskData make_task(const Dataset& data, const std::string& train, const std::vector<std::string>& tests,
                   const SplitOptions& options) {
  TaskData task;
  const auto source = data.part(train, Role::kTrain);
  TORCH_CHECK(
      std::none_of(source->labels().begin(), source->labels().end(), [](auto label) { return label < 0; }),
      "[make_task] '", train,
      "' has images without a label; training needs class folders, a list or labeled shards");
  const auto own_radius = data.find(source->domain, "radius"),
             own_selection = data.find(source->domain, "selection");
  SplitOptions shares = options;
  if (own_radius) shares.radius(0);
  if (own_selection) shares.selection(0);
  // The training domain is tested on a part that is held out of it, unless it has one.
  const auto test_part = [&](const std::string& name) {
    const bool own = name == train || name == source->domain;
    for (const char* split : {"test", "val", "validation"}) {
      if (const auto part = data.find(source->domain, split); own && part) return part;
    }
    return own ? source : data.part(name, Role::kTest);
  };
  bool tests_itself = false;
  for (const auto& name : tests) tests_itself |= test_part(name) == source;
  if (!tests_itself) {
    shares.test(0);
  } else if (shares.test() == 0) {
    shares.test(0.2);
  }
  Split made = split(source, shares);
  const auto say = [&](const char* what, const SampleSubset& subset, double share) {
    const std::string from = share > 0 ? fmt::format("{:.3g} % held out of ", 100 * share) : "";
    task.notes.push_back(
        fmt::format("{}: {}{}, {}", what, from, subset.samples->title(), counted(subset.size(), "image")));
  };
  task.train = std::move(made.train);
  task.radius = own_radius ? all_of(own_radius) : std::move(made.radius);
  task.selection = own_selection ? all_of(own_selection) : std::move(made.selection);
  say("train", task.train, 0);
  say("radius", task.radius, shares.radius());
  say("selection", task.selection, shares.selection());
  for (const auto& name : tests) {
    const auto part = test_part(name);
    task.tests.emplace_back(name, part == source ? made.test : all_of(part));
    say("test", task.tests.back().second, part == source ? shares.test() : 0);
  }
  std::vector<std::pair<std::string, const SampleSubset*>> all = {
      {"train", &task.train}, {"radius", &task.radius}, {"selection", &task.selection}};
  for (const auto& [name, subset] : task.tests) all.emplace_back("test " + name, &subset);
  check_disjoint(all);
  return task;
}

}  // namespace tpgm
