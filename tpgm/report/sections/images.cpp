// Examples of the tests' images, and images that the methods do not agree on.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/encode.h"
#include "tpgm/data/formats/encoded_image.h"
#include "tpgm/data/resize.h"
#include "tpgm/report/sections/sections.h"

namespace tpgm {
namespace {

constexpr size_t kMostImages = 16, kMostAnswers = 5, kMostExamples = 10, kMostOfATest = 3;
constexpr int64_t kLargest = 96;          // pixels of a side
constexpr size_t kMostBytes = 32 * 1024;  // of a file that is shown as it is

// A row, and its predictions for the images of each test.
struct Player {
  const ReportRow* row;
  NamedTensors predictions;

  // −1: not known.
  int64_t says(const TestSet& test, size_t i) const {
    const auto* found = predictions.find(test.name);
    return found ? found->const_data_ptr<int32_t>()[i] : -1;
  }
};

std::vector<Player> players_of(const RunSet& runs, const std::vector<TestSet>& tests) {
  std::vector<Player> players;
  std::vector<std::string> order;
  for (const auto* row : main_rows(runs)) {
    auto predictions = read_predictions(row->run().path);
    if (!predictions) continue;
    // Numbers of classes mean the same where the classes are in one order.
    if (players.empty()) order = predictions->classes;
    if (predictions->classes != order) continue;
    const bool same = std::all_of(tests.begin(), tests.end(), [&](const TestSet& test) {
      const auto* found = predictions->tests.find(test.name);
      return found && found->size(0) == test.subset.size();
    });
    if (same) players.push_back({row, std::move(predictions->tests)});
  }
  // TPGM and what it is compared with come first, then others as far as there is room.
  std::stable_partition(players.begin(), players.end(),
                        [](const Player& player) { return player.row->kind != RowKind::kOther; });
  if (players.size() > kMostAnswers)
    players.erase(players.begin() + static_cast<std::ptrdiff_t>(kMostAnswers), players.end());
  std::stable_sort(players.begin(), players.end(),
                   [](const Player& a, const Player& b) { return a.row < b.row; });  // as in the table
  return players;
}

// The models by which images are chosen: pre-trained, fine-tuned, and TPGM or WISE; or else the first ones.
std::vector<const Player*> judges_of(const std::vector<Player>& players) {
  std::vector<const Player*> judges;
  const auto add = [&](std::initializer_list<RowKind> kinds) {
    for (const RowKind kind : kinds) {
      for (const auto& player : players) {
        if (player.row->kind == kind && std::find(judges.begin(), judges.end(), &player) == judges.end()) {
          judges.push_back(&player);
          return;
        }
      }
    }
  };
  add({RowKind::kZeroShot, RowKind::kPretrained});
  add({RowKind::kFt});
  add({RowKind::kTpgmC, RowKind::kTpgm, RowKind::kWise});
  for (size_t i = 0; judges.size() < 2 && i < players.size(); ++i) {
    if (std::find(judges.begin(), judges.end(), &players[i]) == judges.end()) judges.push_back(&players[i]);
  }
  return judges;
}

// PNG bytes to show; nothing if it cannot be read any more.
std::string thumbnail(const Samples& samples, int64_t index) {
  try {
    const std::string bytes = samples.read(index);
    tpgm::EncodedImage encoded{std::string_view(bytes)};
    const int64_t width = encoded.width(), height = encoded.height(), side = std::max(width, height);
    if (side <= kLargest && bytes.size() <= kMostBytes && bytes.starts_with("\x89PNG")) return bytes;
    const auto scaled = [&](int64_t size) {
      return side <= kLargest ? size : std::max<int64_t>(1, (size * kLargest + side / 2) / side);
    };
    const Image image = encoded.decode();
    return encode_png(
        side <= kLargest ? image : resize(image, scaled(width), scaled(height), Interpolation::kBicubic));
  } catch (const Malformed&) {
    return "";
  }
}

// Images about which the judges are correct and wrong in the same way, test by test.
struct Kind {
  std::vector<bool> correct;                // of each judge
  std::vector<std::vector<size_t>> images;  // of each test, by their places in it
  size_t count = 0;
};

// How many there are of each.
Table table_of(const std::vector<Kind>& kinds, const std::vector<const Player*>& judges, int64_t all) {
  Table table;
  table.caption = fmt::format("Correct (✓) and wrong (✗) on {} test images", grouped(all));
  for (const auto* judge : judges) table.columns.push_back(judge->row->name);
  table.columns.emplace_back("images");
  for (const auto& kind : kinds) {
    auto& row = table.rows.emplace_back();
    for (const bool correct : kind.correct) row.emplace_back(correct ? "✓" : "✗");
    row.push_back(grouped(static_cast<int64_t>(kind.count)));
  }
  return table;
}

// All ways not to agree, those first in which the first and the last are correct and the middle is wrong.
std::vector<Kind> kinds_of(const std::vector<const Player*>& judges, const std::vector<TestSet>& tests) {
  const size_t ways = size_t{1} << judges.size();
  std::vector<Kind> kinds;
  for (size_t way = 1; way + 1 < ways; ++way) {
    Kind kind{{}, std::vector<std::vector<size_t>>(tests.size()), 0};
    for (size_t j = 0; j < judges.size(); ++j) kind.correct.push_back((way >> j & 1) != 0);
    kinds.push_back(kind);
  }
  std::stable_partition(kinds.begin(), kinds.end(), [](const Kind& kind) {
    return kind.correct.size() == 3 && kind.correct.front() == kind.correct.back();
  });
  std::stable_partition(kinds.begin(), kinds.end(), [](const Kind& kind) {
    return kind.correct.size() == 3 && kind.correct == std::vector<bool>{true, false, true};
  });
  for (size_t t = 0; t < tests.size(); ++t) {
    const auto& subset = tests[t].subset;
    for (size_t i = 0; i < subset.indices.size(); ++i) {
      const int64_t label = subset.samples->label(subset.indices[i]);
      std::vector<bool> correct;
      bool known = label >= 0;
      for (const auto* judge : judges) {
        known = known && judge->says(tests[t], i) >= 0;
        correct.push_back(judge->says(tests[t], i) == label);
      }
      if (!known) continue;
      for (auto& kind : kinds) {
        if (kind.correct != correct) continue;
        kind.images[t].push_back(i);
        ++kind.count;
      }
    }
  }
  return kinds;
}

struct Choice {
  size_t kind, test, place;
};

// In turn from every kind, and within it from every test; the middle one of what is left.
std::vector<Choice> choose(std::vector<Kind> kinds, size_t tests) {
  std::vector<Choice> choices;
  std::vector<size_t> turn(kinds.size());
  for (bool any = true; any && choices.size() < kMostImages;) {
    any = false;
    for (size_t k = 0; k < kinds.size() && choices.size() < kMostImages; ++k) {
      for (size_t tries = 0; tries < tests; ++tries) {
        const size_t test = turn[k]++ % tests;
        auto& left = kinds[k].images[test];
        if (left.empty()) continue;
        const auto middle = left.begin() + static_cast<std::ptrdiff_t>(left.size() / 2);
        choices.push_back({k, test, *middle});
        left.erase(middle);
        any = true;
        break;
      }
    }
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.kind < b.kind; });
  return choices;
}

// What a class is called below an image.
std::string class_name(const std::vector<std::string>& classes, int64_t label) {
  if (label < 0 || label >= static_cast<int64_t>(classes.size())) return fmt::format("class {}", label);
  auto text = printable(classes[static_cast<size_t>(label)]);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

// The places in the subset of the images of each class.
std::map<int64_t, std::vector<size_t>> places_by_class(const TestSet& test) {
  std::map<int64_t, std::vector<size_t>> places;
  for (size_t i = 0; i < test.subset.indices.size(); ++i) {
    const int64_t label = test.subset.samples->label(test.subset.indices[i]);
    if (label >= 0) places[label].push_back(i);
  }
  return places;
}

// `count` of them, evenly spread.
std::vector<int64_t> spread_out(const std::vector<int64_t>& all, size_t count) {
  std::vector<int64_t> some;
  for (size_t i = 0; i < std::min(count, all.size()); ++i)
    some.push_back(all[(2 * i + 1) * all.size() / (2 * std::min(count, all.size()))]);
  return some;
}

}  // namespace

Block example_images(const RunSet& runs, Origins& origins) {
  const auto& origin = origins.of(runs.rows.front().run());
  if (origin.tests.empty())
    return Paragraph{fmt::format("Example images of the tests are left out{}{}.",
                                 origin.trouble.empty() ? "" : ": ", origin.trouble)};
  auto tests = origin.tests;
  std::stable_partition(tests.begin(), tests.end(), [](const TestSet& test) { return test.id; });
  const size_t all = tests.size();
  if (all > kMostExamples) tests.erase(tests.begin() + kMostExamples, tests.end());
  const size_t each = std::clamp<size_t>(kMostExamples / tests.size(), 1, kMostOfATest);
  std::vector<std::map<int64_t, std::vector<size_t>>> places;
  for (const auto& test : tests) places.push_back(places_by_class(test));
  std::vector<int64_t> shared;  // classes that all tests have
  for (const auto& [label, found] : places.front()) {
    if (std::all_of(places.begin(), places.end(), [&](const auto& other) { return other.contains(label); }))
      shared.push_back(label);
  }
  ExampleImages examples;
  for (size_t t = 0; t < tests.size(); ++t) {
    const auto& subset = tests[t].subset;
    std::vector<int64_t> labels = shared;
    if (shared.empty()) {
      for (const auto& [label, found] : places[t]) labels.push_back(label);
    }
    auto& group = examples.groups.emplace_back();
    group.title = fmt::format("{} ({})", printable(tests[t].name), tests[t].id ? "ID" : "OOD");
    for (const int64_t label : spread_out(labels, each)) {
      const auto& found = places[t].at(label);
      auto png = thumbnail(*subset.samples, subset.indices[found[found.size() / 2]]);
      if (!png.empty()) group.images.push_back({std::move(png), class_name(origin.classes, label), {}});
    }
  }
  std::erase_if(examples.groups, [](const auto& group) { return group.images.empty(); });
  if (examples.groups.empty())
    return Paragraph{"Example images of the tests are left out: none of them can be read."};
  examples.caption =
      "Images of the tests: in distribution (ID) they are like the training images, out of "
      "distribution (OOD) they are not.";
  if (all > tests.size()) examples.caption += fmt::format(" The first {} of {} tests.", tests.size(), all);
  return examples;
}

Section image_section(const RunSet& runs, Origins& origins) {
  Section section{"Images on which the methods disagree", {}};
  const auto say = [&](const std::string& text) {
    section.blocks.emplace_back(Paragraph{text});
    return section;
  };
  const auto& origin = origins.of(runs.rows.front().run());
  for (const auto& warning : origin.warnings) say(printable(warning, kMaxPath) + ".");
  if (origin.tests.empty() && origin.trouble.empty()) return say("There are no test images.");
  if (origin.tests.empty())
    return say(fmt::format("The test images cannot be opened any more: {}.", origin.trouble));
  auto tests = origin.tests;  // what is out of distribution is looked at first
  std::stable_partition(tests.begin(), tests.end(), [](const TestSet& test) { return !test.id; });
  const auto players = players_of(runs, tests);
  const auto judges = judges_of(players);
  if (judges.size() < 2)
    return say(
        "Fewer than two of the methods left predictions for these images (predictions.safetensors in their "
        "run folders, which older runs did not write).");

  const auto kinds = kinds_of(judges, tests);
  int64_t all = 0;
  for (const auto& test : tests) all += test.subset.size();
  section.blocks.emplace_back(table_of(kinds, judges, all));
  Gallery gallery;
  const auto name = [&](int64_t label) { return class_name(origin.classes, label); };
  for (const auto& choice : choose(kinds, tests.size())) {
    const auto& test = tests[choice.test];
    const int64_t index = test.subset.indices[choice.place];
    const std::string png = thumbnail(*test.subset.samples, index);
    if (png.empty()) continue;
    const int64_t label = test.subset.samples->label(index);
    auto& image = gallery.images.emplace_back();
    image.png = png;
    image.alt = fmt::format("{} ({})", name(label), printable(test.name));
    for (const auto& player : players) {
      const int64_t says = player.says(test, choice.place);
      image.answers.push_back({player.row->name, says < 0 ? "–" : name(says), says == label});
    }
  }
  if (gallery.images.empty()) return section;
  say("Images are picked in turn from each group and test, OOD first; none by hand. The answers are those of "
      "each method's first seed.");
  section.blocks.emplace_back(std::move(gallery));
  return section;
}

}  // namespace tpgm
