// `tpgm data split`: lists for training, radii and selection.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/base/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/check.h"
#include "tpgm/data/class_list.h"
#include "tpgm/data/sources/list.h"
#include "tpgm/data/split.h"
#include "tpgm/io/folder.h"

namespace tpgm::tools {
namespace {

struct SplitArguments {
  std::string where, train, output;
  double fraction = 1, radius = 0.1, selection = 0.1, test = kTestShare;
  uint64_t seed = 0;
  bool content = false;
};

using Sets = std::vector<std::pair<std::string, const SampleSubset*>>;

std::vector<Dataset::Part> parts_to_split(const Dataset& data, const std::vector<std::string>& names) {
  if (!names.empty()) return training_parts(data, names);
  if (data.parts().size() > 1) {
    throw UsageError(fmt::format("'{}' has {} parts; name the one to split with --train: {}", data.where(),
                                 data.parts().size(), fmt::join(data.titles(), ", ")));
  }
  return data.parts();
}

// Files of the same content must not be in two sets, whatever their names.
void check_content(const Dataset& data, const std::vector<Dataset::Part>& parts, const Sets& sets) {
  std::unordered_map<std::string, std::string> set_of;
  for (const auto& [name, subset] : sets) {
    for (const int64_t i : subset->indices) set_of.emplace(subset->samples->place(i), name);
  }
  Progress progress("tpgm data split, comparing contents", count_images(parts), images_text);
  const auto report = check_dataset(data, parts, kMaxPixels, progress.callback());
  std::map<std::string, std::pair<std::string, std::string>>
      seen;  // by the first file with a content: its set, and a place in it
  for (const auto& twins : report.twins) {
    for (const auto& place : {twins.first, twins.second}) {
      const auto set = set_of.find(place);
      if (set == set_of.end()) continue;
      const auto& [other, other_place] =
          seen.emplace(twins.first, std::pair(set->second, place)).first->second;
      TORCH_CHECK(other == set->second, "'", printable(other_place, kMaxPath), "' in ", other, " and '",
                  printable(place, kMaxPath), "' in ", set->second,
                  " are the same image; remove one of them");
    }
  }
}

int split_data(SplitArguments args) {
  const Dataset data(args.where);
  print_notes("data split", data);
  const auto sources = parts_to_split(data, parsed<std::vector<std::string>>(args.train));
  const auto options = SplitOptions()
                           .fraction(args.fraction)
                           .radius(args.radius)
                           .selection(args.selection)
                           .test(args.test)
                           .seed(args.seed);
  std::vector<DomainSplit> domains;
  for (const auto& source : sources) {
    TORCH_CHECK(source->in_files(), "'", args.where,
                "' lies in tars, and lists name files; unpack it, or split ",
                "the folders before packing them");
    domains.push_back(split_domain(data, source, options));
  }
  Sets made_sets;
  for (const auto& domain : domains) {
    const std::string name = domain.train.samples->domain;
    const auto add = [&](const char* what, double share, const Dataset::Part& own,
                         const SampleSubset& subset) {
      if (own && share > 0)
        say_line("data split", fmt::format("'{}' has '{}', which is kept; none is held out for {}",
                                           data.where(), printable(own->title()), what));
      if (own || share == 0) return;
      TORCH_CHECK(subset.size() > 0, "nothing is left for --", what, " ", share, " of ", domain.train.size(),
                  " images; raise it, or --fraction, or give 0 to do without");
      made_sets.emplace_back(name.empty() ? what : name + "/" + what, &subset);
    };
    made_sets.emplace_back(name.empty() ? "train" : name + "/train", &domain.train);
    add("radius", args.radius, domain.own_radius, domain.radius);
    add("selection", args.selection, domain.own_selection, domain.selection);
    add("test", args.test, domain.own_test, domain.test);
  }
  Sets sets = made_sets;
  std::vector<Dataset::Part> parts = sources;
  std::vector<SampleSubset> others;  // parts that must share no image with the sets made
  others.reserve(data.parts().size());
  for (const auto& other : data.parts()) {
    if (std::find(sources.begin(), sources.end(), other) != sources.end()) continue;
    parts.push_back(other);
    sets.emplace_back(other->title(), &others.emplace_back(all_of(other)));
  }
  check_disjoint(sets);
  if (args.content) check_content(data, parts, sets);

  AtomicFolder folder(args.output);
  std::set<std::string> files;
  std::string summary;
  const auto write = [&](const std::string& part_name, const SampleSubset& subset) {
    std::string file = part_name + ".txt";
    std::replace(file.begin(), file.end(), '/', '_');
    TORCH_CHECK(files.insert(file).second, "two parts would both be '", printable(file),
                "'; rename one of them, or split another");
    write_image_list(*subset.samples, subset.indices, folder.partial() / file);
    summary += fmt::format("{}: {}\n", (std::filesystem::path(args.output) / file).string(),
                           images_text(static_cast<size_t>(subset.size())));
  };
  for (const auto& [name, subset] : made_sets) write(name, *subset);
  for (const auto& other : others) write(other.samples->title(), other);
  save_class_list(data.classes(), folder.partial() / "classes.txt");
  folder.commit();
  fmt::print("{}", summary);
  return 0;
}

}  // namespace

Run configure_data_split(CLI::App& app) {
  auto args = std::make_shared<SplitArguments>();
  app.add_option("DATA", args->where, "Data set, as for 'tpgm data check'")->required();
  app.add_option("-o,--output", args->output,
                 "Output folder, a data set of lists: DOMAIN_train.txt, DOMAIN_radius.txt, …, the other "
                 "parts unchanged, and classes.txt")
      ->required();
  app.add_option("--train", args->train, "Domains to split, such as real; default: the only part")
      ->type_name("TEXT,...");
  app.add_option("--fraction", args->fraction,
                 "Fraction of each class to use; the paper's small setting is 0.1");
  app.add_option("--radius", args->radius, "Fraction of those images for learning radii")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--selection", args->selection,
                 "Fraction of those images for selecting checkpoints and settings")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--test", args->test,
                 "Fraction of those images for testing, if the domain has no split test, val or validation")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", args->seed, "Random seed of the split");
  app.add_flag("--content", args->content, "Compare file contents, too, not only paths; reads every image");
  app.footer(
      "Every class is split in the same fractions. An image that would be in two sets, or is in another part "
      "of the data, is an error.");
  return [args] { return split_data(*args); };
}

}  // namespace tpgm::tools
