// `tpgm data split`: lists for training, radii and selection.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/text.h"
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
  double fraction = 1, radius = 0.1, selection = 0.1, test = 0;
  uint64_t seed = 0;
  bool content = false;
};

using Sets = std::vector<std::pair<std::string, const SampleSubset*>>;

Dataset::Part part_to_split(const Dataset& data, const std::string& name) {
  if (!name.empty()) return data.part(name, Role::kTrain);
  if (data.parts().size() > 1) {
    throw UsageError(fmt::format("'{}' has {} parts; name the one to split with --train: {}", data.where(),
                                 data.parts().size(), fmt::join(data.titles(), ", ")));
  }
  return data.parts().front();
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
  const auto part = part_to_split(data, args.train);
  TORCH_CHECK(part->in_files(), "'", args.where, "' lies in tars, and lists name files; unpack it, or split ",
              "the folders before packing them");
  // Parts that the data set has already are kept.
  for (auto [name, share] :
       {std::pair{"radius", &args.radius}, {"selection", &args.selection}, {"test", &args.test}}) {
    if (*share == 0 || !data.find(part->domain, name)) continue;
    say(fmt::format("tpgm data split: '{}' has a part for {}, which is kept; none is held out\n",
                    data.where(), name));
    *share = 0;
  }
  const Split made = split(part, SplitOptions()
                                     .fraction(args.fraction)
                                     .radius(args.radius)
                                     .selection(args.selection)
                                     .test(args.test)
                                     .seed(args.seed));
  Sets made_sets = {{"train", &made.train}};
  const auto add = [&](const char* name, double share, const SampleSubset& subset) {
    if (share == 0) return;
    TORCH_CHECK(subset.size() > 0, "nothing is left for --", name, " ", share, " of ", made.train.size(),
                " images; raise it, or --fraction, or give 0 to do without");
    made_sets.emplace_back(name, &subset);
  };
  add("radius", args.radius, made.radius);
  add("selection", args.selection, made.selection);
  add("test", args.test, made.test);
  Sets sets = made_sets;
  std::vector<Dataset::Part> parts = {part};
  std::vector<SampleSubset> others;  // parts that must share no image with the sets made
  others.reserve(data.parts().size());
  for (const auto& other : data.parts()) {
    if (other == part) continue;
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
  for (const auto& [name, subset] : made_sets)
    write(part->domain.empty() ? name : part->domain + "/" + name, *subset);
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
  app.add_option("--train", args->train, "Part to split, such as real; default: the only one");
  app.add_option("--fraction", args->fraction,
                 "Fraction of each class to use; the paper's small setting is 0.1");
  app.add_option("--radius", args->radius, "Fraction of those images for learning radii")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--selection", args->selection,
                 "Fraction of those images for selecting checkpoints and settings")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--test", args->test, "Fraction of those images for testing, if there is no test split")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", args->seed, "Random seed of the split");
  app.add_flag("--content", args->content, "Compare file contents, too, not only paths; reads every image");
  app.footer(
      "Every class is split in the same fractions. An image that would be in two sets, or is in another part "
      "of the data, is an error.");
  return [args] { return split_data(*args); };
}

}  // namespace tpgm::tools
