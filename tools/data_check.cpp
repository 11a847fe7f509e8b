// `tpgm data check`: what is in a data set, and what is wrong with it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/check.h"
#include "tpgm/data/class_list.h"

namespace tpgm::tools {
namespace {

constexpr size_t kMostShown = 20;  // of each type of problem, unless --json
constexpr size_t kMostNoted = 3;   // of each type of note

struct CheckArguments {
  std::string where, class_list;
  std::vector<std::string> domains;
  int64_t max_pixels = kMaxPixels;
  bool per_class = false, json = false;
};

// Smallest, middle and largest of sorted numbers.
std::string range_text(const std::vector<int64_t>& sorted) {
  if (sorted.empty()) return "-";
  if (sorted.front() == sorted.back()) return fmt::format("{}", sorted.front());
  return fmt::format("{}-{}-{}", sorted.front(), sorted[sorted.size() / 2], sorted.back());
}

std::vector<int64_t> sorted_nonzero(std::vector<int64_t> counts) {
  std::erase(counts, 0);
  std::sort(counts.begin(), counts.end());
  return counts;
}

void print(const Dataset& data, const DatasetReport& report, bool per_class) {
  int64_t images = 0;
  for (const auto& part : report.parts) images += part.images;
  fmt::print("{}: {}, {}, {}\n\n", data.where(),
             counted(static_cast<int64_t>(data.classes().size()), "class"),
             counted(static_cast<int64_t>(report.parts.size()), "part"), counted(images, "image"));
  size_t width = 4;
  for (const auto& part : report.parts) width = std::max(width, part.title.size());
  fmt::print("{:<{}}  {:>8}  {:>10}  {:>14}  {:>16}  {:>16}  {:>9}\n", "part", width, "classes", "images",
             "per class", "width", "height", "size");
  for (const auto& part : report.parts) {
    const auto counts = sorted_nonzero(part.per_class);
    fmt::print("{:<{}}  {:>8}  {:>10}  {:>14}  {:>16}  {:>16}  {:>9}\n", part.title, width, counts.size(),
               grouped(part.images), range_text(counts), range_text(part.widths), range_text(part.heights),
               bytes_text(static_cast<size_t>(part.bytes)));
  }
  fmt::print("\nper class, width, height: smallest-middle-largest\n");
  if (!per_class || data.classes().empty()) return;
  size_t name_width = 5;
  for (const auto& name : data.classes()) name_width = std::max(name_width, name.size());
  const auto column = [](const PartReport& part) { return std::max<size_t>(part.title.size(), 6); };
  fmt::print("\n{:<{}}", "class", name_width);
  for (const auto& part : report.parts) fmt::print("  {:>{}}", part.title, column(part));
  for (size_t i = 0; i < data.classes().size(); ++i) {
    fmt::print("\n{:<{}}", printable(data.classes()[i]), name_width);
    for (const auto& part : report.parts) fmt::print("  {:>{}}", part.per_class[i], column(part));
  }
  fmt::print("\n");
}

template <typename Items, typename Text>
void print_problems(const Items& items, size_t most, const std::string& title, const Text& text) {
  if (items.empty()) return;
  fmt::print("\n{}\n", title);
  for (size_t i = 0; i < std::min(items.size(), most); ++i) fmt::print("  {}\n", text(items[i]));
  if (items.size() > most) fmt::print("  and {} more; --json lists all\n", items.size() - most);
}

void print_problems(const DatasetReport& report) {
  print_problems(
      report.unreadable, kMostShown, fmt::format("{} cannot be read:", images_text(report.unreadable.size())),
      [](const BadImage& bad) {
        return fmt::format("{}: {}", printable(bad.place, kMaxPath), printable(bad.reason, kMaxPath));
      });
  std::vector<Twins> apart, relabelled, within;
  for (const auto& twins : report.twins) {
    (twins.apart ? apart : twins.relabelled ? relabelled : within).push_back(twins);
  }
  const auto text = [](const Twins& twins) {
    return fmt::format("{} = {}", printable(twins.first, kMaxPath), printable(twins.second, kMaxPath));
  };
  print_problems(apart, kMostShown,
                 fmt::format("{} occur in more than one domain or split:", images_text(apart.size())), text);
  print_problems(relabelled, kMostNoted,
                 fmt::format("{} have two labels (a note, not an error):", images_text(relabelled.size())),
                 text);
  print_problems(
      within, kMostNoted,
      fmt::format("{} occur twice in one part (a note, not an error):", images_text(within.size())), text);
}

nlohmann::ordered_json as_json(const Dataset& data, const DatasetReport& report) {
  using Json = nlohmann::ordered_json;
  const auto safe = [](const std::string& text) { return printable(text, kMaxPath); };
  Json json{{"data_dir", safe(data.where())}, {"fine", report.fine()},       {"classes", Json::array()},
            {"parts", Json::array()},         {"unreadable", Json::array()}, {"twins", Json::array()}};
  for (const auto& name : data.classes()) json["classes"].push_back(safe(name));
  json["notes"] = data.notes();
  json["unread"] = data.unread();
  for (const auto& part : report.parts) {
    const auto range = [](const std::vector<int64_t>& sorted) {
      return sorted.empty() ? Json::array() : Json{sorted.front(), sorted[sorted.size() / 2], sorted.back()};
    };
    json["parts"].push_back({{"name", safe(part.title)},
                             {"pictures", part.images},
                             {"bytes", part.bytes},
                             {"per_class", part.per_class},
                             {"width", range(part.widths)},
                             {"height", range(part.heights)}});
  }
  for (const auto& bad : report.unreadable)
    json["unreadable"].push_back({{"file", safe(bad.place)}, {"reason", safe(bad.reason)}});
  for (const auto& twins : report.twins) {
    json["twins"].push_back({{"first", safe(twins.first)},
                             {"second", safe(twins.second)},
                             {"in_two_parts", twins.apart},
                             {"two_labels", twins.relabelled}});
  }
  return json;
}

int check(const CheckArguments& args) {
  DatasetOptions options;
  if (!args.class_list.empty()) options.classes(load_class_list(args.class_list));
  const Dataset data(args.where, options);
  const auto parts = parts_of(data, args.domains);
  const size_t images = count_images(parts);
  DatasetReport report;
  {
    Progress progress("tpgm data check", images, images_text);
    report = check_dataset(data, parts, args.max_pixels, progress.callback());
  }
  const auto unused = unused_labels(data);
  const bool fine = report.fine() && unused.empty();
  if (args.json) {
    auto json = as_json(data, report);
    json["fine"] = fine;
    json["unused_labels"] = unused;
    fmt::print("{}\n", json.dump(2));
  } else {
    for (const auto& note : data.notes()) say_line("data check", fmt::format("'{}': {}", data.where(), note));
    print(data, report, args.per_class);
    print_problems(
        missing_classes(data, report), kMostShown,
        "Not every class is in every part (a note, not an error):", [](const auto& line) { return line; });
    print_problems(report);
    print_problems(unused, kMostShown, "Labels that no image has (do they count from 1?):",
                   [](const auto& label) { return label; });
    const std::string unread = data.unread_note();
    if (!unread.empty()) fmt::print("\n{}.\n", unread);
    if (fine)
      fmt::print("\nEvery {}image can be read, and none occurs in more than one domain or split.\n",
                 unread.empty() ? "" : "other ");
  }
  return fine ? 0 : 1;
}

}  // namespace

Run configure_data_check(CLI::App& app) {
  auto args = std::make_shared<CheckArguments>();
  app.add_option("DATA", args->where,
                 "Data set: a folder of class folders, of lists or of tars; a list; a tar, or a pattern such "
                 "as 'train-{000..146}.tar'")
      ->required();
  app.add_option("--domains", args->domains,
                 "Domains with all their splits, or single splits of them (real,sketch/test); default: all")
      ->delimiter(',');
  app.add_option("--class-list", args->class_list,
                 "Classes in order: a file with one per line, or a folder of class folders; other classes "
                 "are an error; default: the data's");
  app.add_flag("--per-class", args->per_class, "Count the images of each class in each part");
  app.add_option("--max-pixels", args->max_pixels, "Images with more pixels than this count as unreadable")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_flag("--json", args->json, "Print JSON, with every problem");
  app.footer(
      "Exit status 1 if an image cannot be read or occurs in more than one domain or split, or if labels "
      "have gaps.");
  return [args] { return check(*args); };
}

}  // namespace tpgm::tools
