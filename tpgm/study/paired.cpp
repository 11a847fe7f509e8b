#include "tpgm/study/paired.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "tpgm/study/run_record.h"

namespace tpgm {
namespace {

// The mean of some numbers, and its variance.
struct Mean {
  double mean = 0, variance = 0;
  size_t count = 0;

  explicit Mean(const std::vector<double>& values) : count(values.size()) {
    for (const double value : values) mean += value;
    mean /= static_cast<double>(count);
    if (count < 2) return;
    for (const double value : values) variance += (value - mean) * (value - mean);
    variance /= static_cast<double>(count - 1) * static_cast<double>(count);
  }
};

}  // namespace

// The runs of two rows side by side, or those of one.
class Pairs {
 public:
  explicit Pairs(const Hits& row) {
    for (const auto& one : row.seeds_) pairs_.emplace_back(nullptr, &one);
  }
  // No pairs if the rows have other seeds: their means are over all of them.
  Pairs(const Hits& before, const Hits& after) {
    const bool beside = before.seeds() == 1 || after.seeds() == 1;
    for (const auto& one : before.seeds_) {
      for (const auto& other : after.seeds_) {
        if (one.seed == other.seed || beside) pairs_.emplace_back(&one, &other);
      }
    }
    if (!beside && (pairs_.size() != before.seeds() || pairs_.size() != after.seeds())) pairs_.clear();
  }

  std::optional<Estimate> estimate(const std::vector<std::string>& tests) const {
    if (pairs_.empty() || tests.empty()) return std::nullopt;
    const auto number = static_cast<double>(tests.size());
    std::vector<double> of_seeds(pairs_.size());
    double of_images = 0, shares = 0;  // shares: of the variances squared, each by its degrees of freedom
    const auto add_share = [&](double part, size_t count) {
      if (count > 1) shares += part * part / static_cast<double>(count - 1);
    };
    for (const auto& test : tests) {
      const auto values = values_of(test);
      if (values.empty()) return std::nullopt;
      std::vector<double> of_image(values.front().size());  // means over seeds
      for (size_t i = 0; i < values.size(); ++i) {
        of_seeds[i] += Mean(values[i]).mean / number;
        for (size_t k = 0; k < of_image.size(); ++k)
          of_image[k] += values[i][k] / static_cast<double>(values.size());
      }
      const Mean images(of_image);
      const double part = images.variance / (number * number);
      of_images += part;
      add_share(part, images.count);
    }
    const Mean seeds(of_seeds);
    const double variance = of_images + seeds.variance;
    add_share(seeds.variance, seeds.count);
    return Estimate{100 * seeds.mean, 100 * std::sqrt(variance),
                    shares > 0 ? variance * variance / shares : 0};
  }

 private:
  static const Hits::Images* find(const Hits::Seed& seed, const std::string& test) {
    const auto at = std::find_if(seed.tests.begin(), seed.tests.end(),
                                 [&](const auto& each) { return each.first == test; });
    return at == seed.tests.end() ? nullptr : &at->second;
  }

  // The value of each image of a test, for each pair; empty if the pairs have other images.
  std::vector<std::vector<double>> values_of(const std::string& test) const {
    const Hits::Images nothing;
    std::vector<std::pair<const Hits::Images*, const Hits::Images*>> images;
    for (const auto& [before, after] : pairs_)
      images.emplace_back(before ? find(*before, test) : &nothing, find(*after, test));
    const auto* first = images.front().second;
    std::vector<std::vector<double>> all(pairs_.size());
    for (size_t i = 0; i < images.size(); ++i) {
      const auto [before, after] = images[i];
      if (!before || !after || after->size() != first->size()) return {};
      if (before != &nothing && before->size() != first->size()) return {};
      for (size_t k = 0; k < first->size(); ++k) {
        const int one = before == &nothing ? 0 : (*before)[k], other = (*after)[k];
        if ((other < 0) != ((*first)[k] < 0)) return {};
        if (before != &nothing && (one < 0) != (other < 0)) return {};
        if (other < 0) continue;
        all[i].push_back(other - one);
      }
    }
    return all.front().empty() ? std::vector<std::vector<double>>() : all;
  }

  std::vector<std::pair<const Hits::Seed*, const Hits::Seed*>> pairs_;
};

Hits::Hits(const std::vector<std::pair<std::string, std::filesystem::path>>& runs) {
  for (const auto& [seed, path] : runs) {
    const auto predictions = read_predictions(path);
    std::vector<std::pair<std::string, Images>> tests;
    for (const auto& item : predictions ? predictions->labels : NamedTensors()) {
      const at::Tensor& predicted = predictions->tests[item.key()];
      Images images;
      for (int64_t i = 0; i < predicted.numel(); ++i) {
        const int32_t label = item.value().const_data_ptr<int32_t>()[i];
        const int32_t guess = predicted.const_data_ptr<int32_t>()[i];
        images.push_back(label < 0 || guess < 0 ? int8_t{-1} : static_cast<int8_t>(label == guess));
      }
      tests.emplace_back(item.key(), std::move(images));
    }
    if (tests.empty()) {
      seeds_.clear();
      return;
    }
    add(seed, std::move(tests));
  }
}

void Hits::add(const std::string& seed, std::vector<std::pair<std::string, Images>> tests) {
  seeds_.push_back({seed, std::move(tests)});
}

double Estimate::interval() const { return error == 0 ? 0 : error * student_quantile(freedom); }

std::optional<Estimate> accuracy_of(const Hits& row, const std::vector<std::string>& tests) {
  return Pairs(row).estimate(tests);
}

std::optional<Estimate> paired_difference(const Hits& before, const Hits& after,
                                          const std::vector<std::string>& tests) {
  return Pairs(before, after).estimate(tests);
}

double student_quantile(double freedom) {
  // The first are exact; then the expansion of Cornish and Fisher around the normal quantile.
  constexpr double kFirst[] = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706};
  constexpr double kNormal = 1.959964;
  if (!(freedom > 1)) return kFirst[0];
  if (freedom < 5) {
    const auto at = static_cast<size_t>(freedom);  // between it and the next, by 1 / freedom
    const double low = 1 / static_cast<double>(at), high = 1 / static_cast<double>(at + 1);
    return kFirst[at] + (kFirst[at - 1] - kFirst[at]) * (1 / freedom - high) / (low - high);
  }
  const double z = kNormal, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

}  // namespace tpgm
