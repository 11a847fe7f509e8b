#include "tests/report/example.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <limits>

namespace tpgm::test {
namespace {

constexpr std::array kMethods{"ft",  "lp",  "lp_ft",          "l2_sp", "mars_sp", "wise",  "tpgm",
                              "ftp", "bss", "feature_distil", "ema",   "partial", "bitfit"};
constexpr std::array<std::pair<double, double>, 13> kAccuracies{{{81.9, 51.2},
                                                                 {74.6, 49.8},
                                                                 {82.3, 53.0},
                                                                 {81.7, 53.3},
                                                                 {81.8, 53.1},
                                                                 {82.4, 55.2},
                                                                 {83.0, 56.6},
                                                                 {82.8, 56.4},
                                                                 {81.6, 52.9},
                                                                 {81.5, 53.2},
                                                                 {82.1, 52.4},
                                                                 {79.4, 51.8},
                                                                 {78.8, 52.6}}};

// From -1 to 1, without the library's generators, whose distributions differ between standard libraries.
double noise(unsigned i) {
  i = (i ^ 61u) ^ (i >> 16);
  i *= 9u;
  i ^= i >> 4;
  i *= 0x27d4eb2du;
  i ^= i >> 15;
  return static_cast<double>(i % 20001) / 10000 - 1;
}

std::string big_endian(unsigned long value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string chunk(const std::string& type, const std::string& data) {
  const auto body = type + data;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(data.size()) + body + big_endian(sum);
}

Table results() {
  Table table{.caption = "Accuracy in percent, mean ± standard deviation of three seeds",
              .groups = {{"ID", 1}, {"OOD", 5}, {"", 1}},
              .columns = {"Method", "Real", "Sketch", "Painting", "Clipart", "Infograph", "Average", "Hours"},
              .rows = {},
              .marked = {{6, 1}, {6, 6}, {7, 2}, {1, 7}},
              .rules = {1, 6}};
  for (size_t i = 0; i < kMethods.size(); ++i) {
    const auto [id, ood] = kAccuracies[i];
    table.rows.push_back({kMethods[i], fmt::format("{:.2f} ± 0.1{}", id, i % 10),
                          fmt::format("{:.1f}", ood - 6), fmt::format("{:.1f}", ood + 4),
                          fmt::format("{:.1f}", ood + 9), i == 3 ? "" : fmt::format("{:.1f}", ood - 17),
                          fmt::format("{:.1f}", ood),
                          fmt::format("{:.1f}", 1.2 + 0.3 * static_cast<double>(i))});
  }
  return table;
}

}  // namespace

std::string example_png(unsigned size, unsigned seed) {
  std::string pixels;
  for (unsigned y = 0; y < size; ++y) {
    pixels += '\0';  // no filter
    for (unsigned x = 0; x < size; ++x) {
      const double dx = (x + 0.5) / size - 0.5 + 0.1 * noise(seed), dy = (y + 0.5) / size - 0.5;
      const bool inside = std::hypot(dx, dy * (1 + 0.3 * noise(seed + 7))) < 0.3 && std::abs(dx) > 0.1;
      pixels += static_cast<char>(inside ? 40 : 225 + static_cast<int>(20 * noise(x + size * y)));
    }
  }
  std::string packed(compressBound(pixels.size()), '\0');
  uLongf packed_size = packed.size();
  compress2(reinterpret_cast<Bytef*>(packed.data()), &packed_size,
            reinterpret_cast<const Bytef*>(pixels.data()), pixels.size(), 9);
  packed.resize(packed_size);
  const std::string grey("\x08\x00\x00\x00\x00", 5);  // of 8 bits
  return "\x89PNG\r\n\x1A\n" + chunk("IHDR", big_endian(size) + big_endian(size) + grey) +
         chunk("IDAT", packed) + chunk("IEND", "");
}

Plot example_scatter() {
  Plot plot{.title = "In-distribution against out-of-distribution accuracy",
            .x_label = "accuracy on Real (ID), %",
            .y_label = "mean accuracy on the others (OOD), %",
            .series = {}};
  for (size_t i = 0; i < kMethods.size(); ++i) {
    Series series{kMethods[i], {}, {}, {}, false, /*line=*/false, {}};
    for (unsigned seed = 0; seed < 2; ++seed) {
      series.x.push_back(kAccuracies[i].first + 0.15 * noise(static_cast<unsigned>(i) * 2 + seed));
      series.y.push_back(kAccuracies[i].second + 0.3 * noise(static_cast<unsigned>(i) * 3 + seed));
      series.labels.push_back(seed == 0 ? kMethods[i] : "");
    }
    plot.series.push_back(series);
  }
  return plot;
}

Plot example_curves() {
  Plot plot{.title = "Training loss",
            .x_label = "step",
            .y_label = "cross-entropy, nats",
            .log_y = true,
            .series = {}};
  for (unsigned s = 0; s < 14; ++s) {
    Series series{
        s == 13 ? kHostile : fmt::format("{}, seed {}", kMethods[s % kMethods.size()], s % 3), {}, {}};
    for (unsigned i = 0; i < 3000; ++i) {
      series.x.push_back(i);
      series.y.push_back((0.02 + 0.01 * s + 3 * std::exp(-0.002 * i / (1 + 0.1 * s))) *
                         (1 + 0.05 * noise(i + 3000 * s)));
    }
    plot.series.push_back(series);
  }
  return plot;
}

HeatMap example_small_map() {
  HeatMap map{.title = "Accuracy by corruption",
              .x_label = "test set",
              .y_label = "method",
              .value_label = "accuracy, %",
              .columns = {"real", "sketch", "noise", "blur", "rotated", "inverted", "thin", "small", "torn"},
              .rows = {"ft", "lp", "l2_sp", "wise", "tpgm", "ftp"},
              .values = {}};
  for (unsigned row = 0; row < map.rows.size(); ++row) {
    map.values.emplace_back();
    for (unsigned column = 0; column < map.columns.size(); ++column) {
      map.values.back().push_back(85 - 4.7 * column + 1.5 * row + 3 * noise(row * 20 + column));
    }
  }
  map.values[2][5] = std::numeric_limits<double>::quiet_NaN();
  return map;
}

HeatMap example_large_map() {
  HeatMap map{.title = "How far each tensor has moved from the pre-trained weights",
              .x_label = "tensor, from the input to the output",
              .y_label = "run",
              .value_label = "‖Δ‖₂ / ‖θ₀‖₂",
              .columns = {"cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"},
              .rows = {"ft-seed-0", "lp", "l2_sp", "mars_sp", "wise", "tpgm, 100 % of the data", "ftp"},
              .values = {},
              .low = 0,
              .high = 0.2};
  constexpr std::array kParts{"norm1.weight",     "norm1.bias",     "attn.qkv.weight", "attn.qkv.bias",
                              "attn.proj.weight", "attn.proj.bias", "norm2.weight",    "norm2.bias",
                              "mlp.fc1.weight",   "mlp.fc1.bias",   "mlp.fc2.weight",  "mlp.fc2.bias"};
  for (int block = 0; block < 12; ++block) {
    for (const auto* part : kParts) map.columns.push_back(fmt::format("blocks.{}.{}", block, part));
  }
  map.columns.insert(map.columns.end(), {"norm.weight", "norm.bias"});
  for (unsigned row = 0; row < map.rows.size(); ++row) {
    map.values.emplace_back();
    for (unsigned column = 0; column < map.columns.size(); ++column) {
      const double depth = column / 150.0;
      map.values.back().push_back(row == 1 ? 0
                                  : row == 2 && column > 140
                                      ? std::numeric_limits<double>::quiet_NaN()
                                      : (0.22 - 0.02 * row) * depth * depth +
                                            0.015 * std::abs(noise(row * 200 + column)) +
                                            0.01 * (column % 12 == 6));
    }
  }
  return map;
}

Page example_page() {
  const auto example = [](unsigned i) { return GalleryImage{example_png(32, i), "a class", {}}; };
  Gallery gallery{.caption = "Where the runs disagree", .images = {}};
  for (unsigned i = 0; i < 7; ++i) {
    gallery.images.push_back({example_png(i == 6 ? 200 : 32, i),
                              i == 3 ? kHostile : "latin small letter o with a long name",
                              {{"ft", "digit zero", false}, {"tpgm", "latin small letter o", true}}});
  }
  const Plot theory{.title = "A worse pre-trained model may be left further behind",
                    .x_label = "ε, distance of the pre-trained model from the truth",
                    .y_label = "ratio α",
                    .log_x = true,
                    .series = {{"learned on held-out data",
                                {0.25, 0.5, 1, 1.5, 2, 3, 4, 8},
                                {0.038, 0.138, 0.315, 0.55, 0.73, 0.817, 0.894, 0.927},
                                {0.017, 0.049, 0.107, 0.146, 0.12, 0.09, 0.084, 0.054}},
                               {"best, in closed form",
                                {0.25, 0.5, 1, 1.5, 2, 3, 4, 8},
                                {0.032, 0.134, 0.311, 0.546, 0.728, 0.818, 0.868, 0.958},
                                {},
                                true}}};
  Code recipe{"Effective recipe of tpgm-seed-0", "", true};
  for (int i = 0; i < 30; ++i) recipe.text += fmt::format("option_{} = {}  # what it is for\n", i, i * i);
  return {
      .title = "Thirteen ways to fine-tune a vision transformer",
      .subtitle = "ViT-B/16 from CLIP, on the Real images of DomainNet; 39 runs, three seeds each",
      .sections = {{"Results",
                    {Paragraph{"TPGM keeps most of the pre-trained model's robustness: it is the best on the "
                               "data that it was trained on, and the best on average on those it was not."},
                     ExampleImages{"The tests.",
                                   {{"real (ID)", {example(1), example(2)}}, {"sketch (OOD)", {example(3)}}}},
                     results(), FoldedTable{"All rows", results()},
                     to_figure("id-ood", "Up and to the right is better.", example_scatter())}},
                   {"Robustness", {to_figure("corruptions", "One test set a column.", example_small_map())}},
                   {"Training", {to_figure("loss", "", example_curves())}},
                   {"Distances",
                    {to_figure("distances", "Bright tensors have moved far.", example_large_map()),
                     to_figure("theory", "Theorem 1.", theory)}},
                   {"Images", {gallery}},
                   {"How this was made",
                    {Code{"Commands",
                          "tpgm sweep recipes/tables/domainnet --seeds 0,1,2 --output runs --device cuda:0 "
                          "--resume --jobs 4 --set epochs=60\n"},
                     recipe,
                     Table{.caption = "",
                           .groups = {},
                           .columns = {"What", "Value"},
                           .rows = {{"LibTorch", "2.11.0"},
                                    {"Name", kHostile},
                                    {"A long remark",
                                     "All runs of this page were trained with the same augmentation, "
                                     "which is not the paper's: it had no color jitter."}},
                           .marked = {},
                           .rules = {}}}}}};
}

}  // namespace tpgm::test
