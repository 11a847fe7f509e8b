// `tpgm theory`: checks Theorem 1 on random linear problems, and shows the learned α against ε.
#include "benchmarks/theory.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tpgm/io/file.h"
#include "tpgm/report/plot.h"

namespace tpgm::tools {
namespace {

using benchmarks::TheoryOptions;
using benchmarks::TheoryRow;

void print_table(const TheoryOptions& options, const std::vector<TheoryRow>& rows, int64_t violations) {
  fmt::print(
      "Theorem 1: |θ̃ᵀx − y| ≤ (1−α)ετ + (ε + α‖θ−θ₀‖)τ⊥ on average, for θ̃ = θ₀ + α(θ − θ₀).\n"
      "Linear models in {} dimensions; θ fits {} training points exactly and has drifted {:g} from θ₀ "
      "outside\n"
      "of their span. ε is how far the pre-trained θ₀ is from the truth. {} problems for each ε.\n\n",
      options.dims(), options.samples(), options.drift(), options.draws());
  fmt::print("{:>6}  {:>18}  {:>7}  {:>28}  {:>7}  {:>10}\n", "", "α learned", "", "test loss of", "", "");
  fmt::print("{:>6}  {:>18}  {:>7}  {:>9} {:>9} {:>8}  {:>7}  {:>10}\n", "ε", "on held-out data", "best α",
             "θ₀ (α=0)", "θ (α=1)", "θ̃ ", "bound", "loss/bound");
  for (const auto& row : rows) {
    fmt::print("{:>6g}  {:>10.3f} ± {:<5.3f}  {:>7.3f}  {:>9.3f} {:>9.3f} {:>7.3f}  {:>7.2f}  {:>10.3f}\n",
               row.epsilon, row.alpha, row.alpha_spread, row.alpha_best, row.loss_pretrained,
               row.loss_finetuned, row.loss_projected, row.bound, row.tightest);
  }
  int64_t checks = 0;
  for (const auto& row : rows) {
    checks += row.checks;
  }
  fmt::print("\nThe bound was checked {} times and {}. ", checks,
             violations == 0 ? "always held" : fmt::format("VIOLATED {} times", violations));
  fmt::print(
      "loss/bound is the largest ratio.\n"
      "The worse the pre-trained model (larger ε), the larger the α that held-out data ask for.\n");
}

void write_plot(const std::vector<TheoryRow>& rows, const std::string& path) {
  Series learned{"learned on held-out data", {}, {}, {}};
  Series best{"best, in closed form", {}, {}, {}, /*dashed=*/true};
  for (const auto& row : rows) {
    learned.x.push_back(row.epsilon);
    learned.y.push_back(row.alpha);
    learned.spread.push_back(row.alpha_spread);
    best.x.push_back(row.epsilon);
    best.y.push_back(row.alpha_best);
  }
  const auto svg = to_svg({.title = "A worse pre-trained model may be left further behind",
                           .x_label = "ε, distance of the pre-trained model from the truth",
                           .y_label = "ratio α",
                           .log_x = true,
                           .series = {learned, best}});
  AtomicFile file(path);
  file.write(svg.data(), svg.size());
  file.commit();
}

}  // namespace

Run configure_theory(CLI::App& app) {
  struct Arguments {
    TheoryOptions theory;
    bool json = false;
    std::string plot;
  };
  auto args = std::make_shared<Arguments>();
  auto& theory = args->theory;
  app.add_option("--dims", theory.dims(), "Dimension of the linear model");
  app.add_option("--samples", theory.samples(), "Number of training points, fewer than --dims");
  app.add_option(
      "--drift", theory.drift(),
      "Distance between the fine-tuned and the pre-trained model, outside the span of the training points");
  app.add_option("--epsilon", theory.epsilons(), "Distances between the pre-trained and the true model")
      ->delimiter(',');
  app.add_option("--draws", theory.draws(), "Number of problems for each epsilon");
  app.add_option("--held-out", theory.held_out(), "Number of held-out points on which α is learned");
  app.add_option("--test-points", theory.test_points(), "Number of test points on which losses are measured");
  app.add_option("--radius-steps", theory.radius_steps(), "Number of radius steps");
  app.add_option("--seed", theory.seed(), "Random seed");
  app.add_flag("--json", args->json, "Print JSON");
  app.add_option("--plot", args->plot, "SVG file to write: α against ε");
  return [args] {
    const auto rows = benchmarks::check_theorem(args->theory);
    if (!args->plot.empty()) {
      write_plot(rows, args->plot);
    }
    int64_t violations = 0;
    for (const auto& row : rows) {
      violations += row.violations;
    }
    if (args->json) {
      auto list = nlohmann::ordered_json::array();
      for (const auto& row : rows) {
        list.push_back({{"epsilon", row.epsilon},
                        {"alpha", row.alpha},
                        {"alpha_spread", row.alpha_spread},
                        {"alpha_best", row.alpha_best},
                        {"loss_pretrained", row.loss_pretrained},
                        {"loss_finetuned", row.loss_finetuned},
                        {"loss_projected", row.loss_projected},
                        {"bound", row.bound},
                        {"tightest", row.tightest},
                        {"checks", row.checks},
                        {"violations", row.violations}});
      }
      fmt::print("{}\n", nlohmann::ordered_json{{"rows", list}, {"violations", violations}}.dump(2));
    } else {
      print_table(args->theory, rows, violations);
    }
    return violations == 0 ? 0 : 1;
  };
}

}  // namespace tpgm::tools
