// Distributes the images of each class over the subsets, by shares and at random.
#include "tpgm/data/split.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
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

std::vector<Dataset::Part> training_parts(const Dataset& data, const std::vector<std::string>& names) {
  std::vector<Dataset::Part> parts;
  for (const auto& name : names) {
    const auto part = data.part(name, Role::kTrain);
    for (size_t i = 0; i < parts.size(); ++i)
      TORCH_CHECK(part->domain != parts[i]->domain, "[training_parts] '", printable(names[i]), "' and '",
                  printable(name), "' are of one domain; train on each domain once");
    TORCH_CHECK(
        std::none_of(part->labels().begin(), part->labels().end(), [](auto label) { return label < 0; }),
        "[training_parts] '", printable(name),
        "' has images without a label; training needs class folders, a list or labelled shards");
    parts.push_back(part);
  }
  return parts;
}

DomainSplit split_domain(const Dataset& data, const Dataset::Part& source, const SplitOptions& options) {
  DomainSplit result;
  result.shares = options;
  result.own_radius = data.find(source->domain, "radius");
  result.own_selection = data.find(source->domain, "selection");
  for (const char* split : {"test", "val", "validation"}) {
    if (!result.own_test) result.own_test = data.find(source->domain, split);
  }
  if (result.own_test == source) result.own_test = nullptr;
  if (result.own_radius) result.shares.radius(0);
  if (result.own_selection) result.shares.selection(0);
  if (result.own_test) result.shares.test(0);
  Split made = split(source, result.shares);
  const auto or_own = [](const Dataset::Part& own, SampleSubset& held_out) {
    return own ? all_of(own) : std::move(held_out);
  };
  result.train = std::move(made.train);
  result.radius = or_own(result.own_radius, made.radius);
  result.selection = or_own(result.own_selection, made.selection);
  result.test = or_own(result.own_test, made.test);
  return result;
}

TaskData make_task(const Dataset& data, const std::vector<std::string>& train,
                   const std::vector<std::string>& tests, const SplitOptions& options) {
  TORCH_CHECK(!train.empty(), "[make_task] there is no domain to train on");
  TaskData task;
  const auto sources = training_parts(data, train);
  // The training domain that a test is of, or the number of them.
  const auto domain_of = [&](const std::string& test) {
    size_t i = 0;
    while (i < train.size() && test != train[i] && test != sources[i]->domain) ++i;
    return i;
  };
  std::vector<DomainSplit> domains;
  for (size_t i = 0; i < train.size(); ++i) {
    const bool tested =
        std::any_of(tests.begin(), tests.end(), [&](const auto& test) { return domain_of(test) == i; });
    const double share = options.test() == 0 ? kTestShare : options.test();
    domains.push_back(split_domain(data, sources[i], SplitOptions(options).test(tested ? share : 0)));
  }

  const auto say = [&](const char* what, const SampleSubset& subset, double share) {
    const std::string from = share > 0 ? fmt::format("{:.3g} % held out of ", 100 * share) : "";
    task.notes.push_back(
        fmt::format("{}: {}{}, {}", what, from, subset.samples->title(), counted(subset.size(), "image")));
  };
  std::map<std::vector<Dataset::Part>, Dataset::Part> joined;  // sets of the same parts share one
  // The images of all domains; those of one stay what they are.
  const auto join = [&](const char* what, SampleSubset DomainSplit::*set,
                        double share_of(const SplitOptions&)) {
    std::vector<Dataset::Part> parts;
    for (const auto& domain : domains) {
      say(what, domain.*set, share_of(domain.shares));
      parts.push_back((domain.*set).samples);
    }
    if (domains.size() == 1) return domains.front().*set;
    auto& all = joined[parts];
    if (!all) all = std::make_shared<const Samples>(Samples::joined(parts));
    SampleSubset result{all, {}};
    int64_t begin = 0;
    for (const auto& domain : domains) {
      for (const int64_t i : (domain.*set).indices) result.indices.push_back(begin + i);
      begin += (domain.*set).samples->size();
    }
    task.notes.push_back(fmt::format("{}: {}, {}", what,
                                     counted(static_cast<int64_t>(domains.size()), "domain"),
                                     counted(result.size(), "image")));
    return result;
  };
  task.train = join("train", &DomainSplit::train, [](const SplitOptions&) { return 0.0; });
  task.radius =
      join("radius", &DomainSplit::radius, [](const SplitOptions& shares) { return shares.radius(); });
  task.selection = join("selection", &DomainSplit::selection,
                        [](const SplitOptions& shares) { return shares.selection(); });
  for (const auto& name : tests) {
    const size_t i = domain_of(name);
    const bool own = i < domains.size();
    task.tests.emplace_back(name, own ? domains[i].test : all_of(data.part(name, Role::kTest)));
    say("test", task.tests.back().second, own ? domains[i].shares.test() : 0);
  }
  std::vector<std::pair<std::string, const SampleSubset*>> all = {
      {"train", &task.train}, {"radius", &task.radius}, {"selection", &task.selection}};
  for (const auto& [name, subset] : task.tests) all.emplace_back("test " + name, &subset);
  check_disjoint(all);
  return task;
}

}  // namespace tpgm
